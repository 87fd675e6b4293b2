# Puts files into a C++ source, as the binary carries the chat page.
#
#   cmake -DOUTPUT=out.cc -DDIRECTORY=dir -DFILES=a;b -P EmbedFiles.cmake
#
# `out.cc` defines spillway::server::page_files() of server/page_files.h.
set(types_html "text/html; charset=utf-8")
set(types_js "text/javascript; charset=utf-8")
set(types_css "text/css; charset=utf-8")
set(types_svg "image/svg+xml")

set(arrays "")
set(rows "")
set(index 0)
foreach(file IN LISTS FILES)
  file(READ "${DIRECTORY}/${file}" hex HEX)
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${hex}")
  get_filename_component(extension "${file}" EXT)
  string(SUBSTRING "${extension}" 1 -1 extension)
  if(NOT DEFINED types_${extension})
    message(FATAL_ERROR "EmbedFiles: no media type for ${file}")
  endif()
  set(path "/${file}")
  if(file STREQUAL "index.html")
    set(path "/")
  endif()
  string(APPEND arrays "const unsigned char kFile${index}[] = {${bytes}};\n")
  string(APPEND rows "    {\"${path}\", \"${types_${extension}}\", "
    "{reinterpret_cast<const char*>(kFile${index}), sizeof(kFile${index})}},\n")
  math(EXPR index "${index} + 1")
endforeach()

file(WRITE "${OUTPUT}" "// Made by cmake/EmbedFiles.cmake.
#include \"server/page_files.h\"

namespace spillway::server {
namespace {

${arrays}
const PageFile kFiles[] = {
${rows}};

}  // namespace

std::span<const PageFile> page_files() { return kFiles; }

}  // namespace spillway::server
")
