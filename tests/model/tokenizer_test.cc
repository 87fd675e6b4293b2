// What holds for every tokenizer: special tokens, BOS and EOS, what ends an answer, hostile files.
#include "model/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "model/gguf.h"
#include "model/text_stream.h"
#include "tests/model/gguf_writer.h"
#include "tests/model/toy_vocabulary.h"

namespace spillway::model {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr EncodeOptions kPlain{.add_special = false, .parse_special = false};
constexpr EncodeOptions kSpecial{.add_special = false, .parse_special = true};
constexpr EncodeOptions kPrompt{.add_special = true, .parse_special = true};

// Bytes 0 to 255, then the special tokens.
struct Chat : ToyVocabulary {
  Chat() : ToyVocabulary("gpt2", "gpt-2") {
    add_all_bytes();
    hello = add_merge("h", "i");
    begin = add("<bos>", TokenType::kControl);
    end = add("<|im_end|>", TokenType::kControl);
    lines = add("\n\n", TokenType::kUserDefined);
    more_lines = add("\n\n\n", TokenType::kUserDefined);
    unknown = add("<unk>", TokenType::kUnknown);
    data.bos = begin;
    data.adds_bos = true;
  }
  TokenId hello, begin, end, lines, more_lines, unknown;
};

// case M2
TEST(Tokenizer, plain_text_never_becomes_a_control_token) {
  const Chat chat;
  const auto tokenizer = chat.tokenizer();
  for (const std::string text : {"<|im_end|>", "<bos>", "<unk>", "a<|im_end|>b"}) {
    const std::vector<TokenId> tokens = tokenizer->encode(text, kPlain);
    for (const TokenId token : tokens) EXPECT_LT(token, 256) << text;
    EXPECT_EQ(tokenizer->decode(tokens, false), text);
  }
  EXPECT_THAT(tokenizer->encode("hi<|im_end|>", kSpecial), ElementsAre(chat.hello, chat.end));
}

// case M2: not by way of merges that lead to a control token's text, nor as a word of its own
TEST(Tokenizer, merges_do_not_lead_to_control_tokens) {
  ToyVocabulary bpe("gpt2", "llama-bpe");
  bpe.add_all_bytes();
  bpe.add_merge("a", "b");
  bpe.data.types.back() = TokenType::kControl;
  EXPECT_THAT(bpe.tokenizer()->encode("ab", kPlain), ElementsAre('a', 'b'));
  ToyVocabulary spm("llama");
  spm.data.adds_space_prefix = false;
  spm.add_byte_tokens();
  const TokenId a = spm.add("a"), b = spm.add("b");
  spm.add("ab", TokenType::kControl);
  EXPECT_THAT(spm.tokenizer()->encode("ab", kPlain), ElementsAre(a, b));
}

// case M2: not where a file says that a control token stands for what has none
TEST(Tokenizer, an_unknown_token_that_is_a_control_token_stands_for_no_text) {
  for (const TokenType type : {TokenType::kControl, TokenType::kUnknown}) {
    ToyVocabulary spm("llama");
    spm.data.unknown = spm.add("[EOT]", type);  // by its name it ends a turn
    const TokenId a = spm.add("a");
    spm.data.adds_space_prefix = false;
    spm.data.adds_bos = false;
    EXPECT_EQ(spm.tokenizer()->encode("a\xC3\xA9\xFF", {}), std::vector<TokenId>{a});

    ToyVocabulary bpe("gpt2");
    bpe.data.unknown = bpe.add("[EOT]", type);
    const TokenId b = bpe.add_bytes("b");
    bpe.add_merge("b", "b");
    EXPECT_EQ(bpe.tokenizer()->encode("b\xFF", {}), std::vector<TokenId>{b});
  }
}

// case M2
TEST(Tokenizer, user_defined_tokens_match_in_plain_text_longest_first) {
  const Chat chat;
  EXPECT_THAT(chat.tokenizer()->encode("hi\n\n\n\n\nhi", kPlain),
              ElementsAre(chat.hello, chat.more_lines, chat.lines, chat.hello));
}

// case M2
TEST(Tokenizer, there_is_exactly_one_bos) {
  const Chat chat;
  const auto tokenizer = chat.tokenizer();
  EXPECT_THAT(tokenizer->encode("hi", kPrompt), ElementsAre(chat.begin, chat.hello));
  EXPECT_THAT(tokenizer->encode("<bos>hi", kPrompt), ElementsAre(chat.begin, chat.hello));
  EXPECT_THAT(tokenizer->encode("", kPrompt), ElementsAre(chat.begin));
  EXPECT_THAT(tokenizer->encode("<bos>hi", kSpecial), ElementsAre(chat.begin, chat.hello));
  EXPECT_TRUE(tokenizer->adds_bos());
}

TEST(Tokenizer, eos_is_added_once_where_the_file_says_so) {
  Chat chat;
  chat.data.eos = chat.end;
  chat.data.adds_eos = true;
  const auto tokenizer = chat.tokenizer();
  EXPECT_THAT(tokenizer->encode("hi", kPrompt), ElementsAre(chat.begin, chat.hello, chat.end));
  EXPECT_THAT(tokenizer->encode("hi<|im_end|>", kPrompt),
              ElementsAre(chat.begin, chat.hello, chat.end));
}

TEST(Tokenizer, control_tokens_show_only_when_asked) {
  const Chat chat;
  const auto tokenizer = chat.tokenizer();
  const std::vector<TokenId> tokens = {chat.begin, chat.hello, chat.unknown, chat.lines, chat.end};
  EXPECT_EQ(tokenizer->decode(tokens, false), "hi\n\n");
  EXPECT_EQ(tokenizer->decode(tokens, true), "<bos>hi<unk>\n\n<|im_end|>");
  EXPECT_TRUE(tokenizer->is_control(chat.end));
  EXPECT_FALSE(tokenizer->is_control(chat.lines));
}

TEST(Tokenizer, ids_outside_the_vocabulary_stand_for_nothing) {
  const Chat chat;
  const auto tokenizer = chat.tokenizer();
  for (const TokenId token :
       {-1, static_cast<TokenId>(tokenizer->vocabulary()), std::numeric_limits<TokenId>::max(),
        std::numeric_limits<TokenId>::min()}) {
    EXPECT_EQ(tokenizer->piece(token, true), "");
    EXPECT_FALSE(tokenizer->is_control(token));
    EXPECT_FALSE(tokenizer->ends_generation(token));
  }
}

TEST(Tokenizer, answers_end_at_named_and_at_known_tokens) {
  Chat chat;
  const TokenId eot = chat.add("<|eot_id|>", TokenType::kNormal);  // mistyped in some files
  chat.data.eos = chat.hello;
  const auto tokenizer = chat.tokenizer();
  EXPECT_THAT(tokenizer->end_tokens(), ElementsAre(chat.hello, chat.end, eot));
  EXPECT_TRUE(tokenizer->ends_generation(eot));
  EXPECT_TRUE(tokenizer->is_control(eot));
  EXPECT_FALSE(tokenizer->ends_generation(chat.begin));
}

// case M2
TEST(Tokenizer, code_infill_tokens_are_control_tokens_whatever_the_file_says) {
  Chat chat;
  const TokenId prefix = chat.add("<|fim_prefix|>", TokenType::kUserDefined);
  const TokenId call = chat.add("<tool_call>", TokenType::kUserDefined);
  const auto tokenizer = chat.tokenizer();
  EXPECT_TRUE(tokenizer->is_control(prefix));
  EXPECT_THAT(tokenizer->encode("<|fim_prefix|>", kPlain), testing::Not(testing::Contains(prefix)));
  EXPECT_THAT(tokenizer->encode("<|fim_prefix|>", kSpecial), ElementsAre(prefix));
  EXPECT_THAT(tokenizer->encode("<tool_call>", kPlain), ElementsAre(call));
}

TEST(Tokenizer, ordinary_strike_out_tag_ends_no_answer) {
  Chat chat;
  const TokenId tag = chat.add("</s>", TokenType::kNormal);
  const auto tokenizer = chat.tokenizer();
  EXPECT_FALSE(tokenizer->ends_generation(tag));
  EXPECT_EQ(tokenizer->piece(tag), "</s>");
}

TEST(Tokenizer, phi3_special_tokens_swallow_the_space_behind_them) {
  ToyVocabulary phi("llama");
  phi.data.model_name = "Phi-3 mini";
  phi.data.adds_space_prefix = false;
  phi.add_byte_tokens();
  const TokenId x = phi.add("x"), space = phi.add("\xE2\x96\x81");
  const TokenId end = phi.add("<|end|>", TokenType::kControl);
  const TokenId text_end = phi.add("<|endoftext|>", TokenType::kControl);
  const auto tokenizer = phi.tokenizer();
  EXPECT_THAT(tokenizer->encode("x <|end|> \n x<|endoftext|> x", kSpecial),
              ElementsAre(x, space, end, x, text_end, space, x));
}

TEST(Tokenizer, streamed_text_is_what_decode_gives) {
  ToyVocabulary spm("llama");
  spm.add_byte_tokens();
  spm.data.bos = spm.add("<s>", TokenType::kControl);
  spm.add("\xE2\x96\x81");
  spm.add("a");
  const auto tokenizer = spm.tokenizer();
  for (const std::string text : {"", "a", " a", "  a a", "\xF0\x9F\x98\x80 a", "\xE6\xBC\xA2"}) {
    const std::vector<TokenId> tokens = tokenizer->encode(text, {});
    TextStream stream(*tokenizer, {}, TextStreamOptions{.at_text_start = true});
    std::string streamed;
    for (const TokenId token : tokens) streamed += stream.push(token).text;
    streamed += stream.flush();
    EXPECT_EQ(streamed, text);
    EXPECT_EQ(tokenizer->decode(tokens, false), text);
  }
}

std::string create_error(const GgufWriter& writer) {
  const std::string bytes = writer.bytes();
  const auto file = GgufFile::parse(std::as_bytes(std::span(bytes)), "test.gguf");
  EXPECT_TRUE(file.has_value());
  const auto tokenizer = Tokenizer::create(*file);
  return tokenizer ? "no error" : tokenizer.error().message;
}

GgufWriter sample(const std::string& model = "gpt2", const std::string& pre = "gpt-2") {
  GgufWriter writer;
  writer.string("tokenizer.ggml.model", model)
      .string("tokenizer.ggml.pre", pre)
      .strings("tokenizer.ggml.tokens", {"a", "b", "ab"})
      .strings("tokenizer.ggml.merges", {"a b"});
  return writer;
}

TEST(Tokenizer, reads_a_model_file_and_outlives_it) {
  std::unique_ptr<Tokenizer> tokenizer;
  {
    const std::string bytes = sample()
                                  .u32("tokenizer.ggml.eos_token_id", 2)
                                  .u32("tokenizer.ggml.bos_token_id", ~0u)
                                  .bytes();
    const auto file = GgufFile::parse(std::as_bytes(std::span(bytes)), "test.gguf");
    tokenizer = Tokenizer::create(*file).value();
  }
  EXPECT_EQ(tokenizer->vocabulary(), 3u);
  EXPECT_EQ(tokenizer->eos(), 2);
  EXPECT_EQ(tokenizer->bos(), -1);
  EXPECT_THAT(tokenizer->encode("aab", kPlain), ElementsAre(0, 0, 1));  // ab is EOS: control
}

// case M1
TEST(Tokenizer, errors_name_the_field) {
  EXPECT_EQ(create_error(sample()), "no error");
  EXPECT_THAT(create_error(GgufWriter()), HasSubstr("tokenizer.ggml.model"));
  EXPECT_THAT(create_error(sample("wordpiece")), HasSubstr("'wordpiece'"));
  EXPECT_THAT(create_error(sample("gpt2", "martian")), HasSubstr("'martian'"));
  EXPECT_THAT(create_error(sample("llama")), HasSubstr("tokenizer.ggml.scores"));
  EXPECT_THAT(create_error(sample().u32("tokenizer.ggml.bos_token_id", 3)),
              HasSubstr("bos_token_id is 3"));
  EXPECT_THAT(create_error(sample().u32("tokenizer.ggml.eot_token_id", 1u << 31)),
              HasSubstr("eot_token_id"));
  EXPECT_THAT(create_error(sample().string("tokenizer.ggml.add_bos_token", "yes")),
              HasSubstr("add_bos_token"));
  EXPECT_THAT(
      create_error(sample().array<int32_t>("tokenizer.ggml.token_type", GgufType::kI32, {1, 1}, 2)),
      HasSubstr("token_type has 2"));
  EXPECT_THAT(
      create_error(sample().array<float>("tokenizer.ggml.scores", GgufType::kF32, {1, 2, 3, 4}, 4)),
      HasSubstr("scores has 4"));
  GgufWriter empty;
  empty.string("tokenizer.ggml.model", "gpt2").strings("tokenizer.ggml.tokens", {});
  EXPECT_THAT(create_error(empty), HasSubstr("tokenizer.ggml.tokens"));
}

// case M1
TEST(Tokenizer, odd_files_still_give_a_tokenizer) {
  GgufWriter writer;
  writer.string("tokenizer.ggml.model", "llama")
      .strings("tokenizer.ggml.tokens", {"", "", "a", "a", "<0xZZ>", "\xFF\xFE", "<0x41>", ""})
      .array<float>("tokenizer.ggml.scores", GgufType::kF32,
                    {NAN, INFINITY, -INFINITY, 0, NAN, 1, 2, 3}, 8)
      .array<int32_t>("tokenizer.ggml.token_type", GgufType::kI32, {1, 4, 1, 1, 6, 99, 6, -3}, 8);
  const std::string bytes = writer.bytes();
  const auto file = GgufFile::parse(std::as_bytes(std::span(bytes)), "test.gguf");
  const auto tokenizer = Tokenizer::create(*file);
  ASSERT_TRUE(tokenizer.has_value()) << tokenizer.error().message;
  EXPECT_THAT((*tokenizer)->encode("aA", kPlain), ElementsAre(0, 2, 6));  // 0: unknown, the space
}

}  // namespace
}  // namespace spillway::model
