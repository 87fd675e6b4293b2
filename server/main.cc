// spillway: the command line's entry.

#include <unistd.h>

#include <cstdio>
#include <iostream>

#include "server/cli/commands.h"
#include "server/cli/gpus.h"
#include "server/template_command.h"
#include "server/version.h"

int main(int argc, char** argv) {
  using namespace spillway::server;
  int exit_code = 0;
  auto line = parse_command_line(argc, argv, exit_code);
  if (!line) return exit_code;
  switch (line->command) {
    case Command::kServe:
      return serve_command(line->serve, argv);
    case Command::kChat:
      return chat_command(line->chat);
    case Command::kInspect:
      return inspect_command(line->inspect);
    case Command::kPlan:
      return plan_command(line->plan);
    case Command::kDoctor:
      return doctor_command(line->doctor);
    case Command::kTokenize:
      if (line->tokenize.text.empty()) line->tokenize.from_stdin = isatty(STDIN_FILENO) == 0;
      return tokenize_command(line->tokenize);
    case Command::kStore:
      return store_command(line->store);
    case Command::kTemplate:
      return template_command(line->render, std::cout, std::cerr);
    case Command::kVersion:
      std::printf("spillway %s, %s\n", std::string(version()).c_str(), gpu_support().c_str());
      return 0;
  }
}
