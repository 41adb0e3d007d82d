// Texts, token ids and conversations as prompts.
#include <algorithm>

#include "data/utf8.h"
#include "http/api_fault.h"
#include "http/fields.h"
#include "http/openai_request.h"
#include "serve/conversation.h"

namespace mt::http {
namespace {

// A text of so many bytes has at least that many tokens: far too long a one is refused unread.
void check_bytes(size_t bytes, const std::string& field, const ServedModel& model) {
  const int64_t least = static_cast<int64_t>(bytes) / model.longest_piece;
  if (least < model.max_length) return;
  throw ApiFault(400, field,
                 fmt::format("{}: at least {} tokens, but this server's context length is {}",
                             field, least, model.max_length),
                 "context_length_exceeded");
}

// The text of a message: a string, or parts of type text.
std::string content_of(const Json& content, const std::string& field) {
  if (content.is_string()) return content.as_string();
  if (!content.is_array()) {
    throw bad_field(field, "{}: expected a string or an array of parts, found {}", field,
                    kind_of(content));
  }
  std::string out;
  for (size_t i = 0; i < content.as_array().size(); ++i) {
    const std::string at = fmt::format("{}[{}].", field, i);
    Fields part(content.as_array()[i], at);
    const std::string type = part.text("type").value_or("");
    if (type != "text") {
      throw bad_field(at + "type", "{}type '{}' is not supported: expected text", at,
                      type.substr(0, 50));
    }
    const Json& text = part.required("text");
    if (!text.is_string()) {
      throw bad_field(at + "text", "{}text: expected a string, found {}", at, kind_of(text));
    }
    out += text.as_string();
    part.done();
  }
  return out;
}

struct Message {
  std::string role, text;
};

Message read_message(const Json& message, const std::string& at) {
  Fields fields(message, at);
  const Json& role = fields.required("role");
  if (!role.is_string()) {
    throw bad_field(at + "role", "{}role: expected a string, found {}", at, kind_of(role));
  }
  Message out{role.as_string(), content_of(fields.required("content"), at + "content")};
  if (out.role == "developer") out.role = "system";  // OpenAI's newer name
  if (out.role != "system" && out.role != "user" && out.role != "assistant") {
    throw bad_field(at + "role", "{}role '{}' is not supported: expected system, user or assistant",
                    at, out.role.substr(0, 50));
  }
  fields.text("name");  // of the speaker: the template has no place for it
  if (fields.any("name") != nullptr) fields.not_supported("name", "Gemma's template has no names");
  fields.not_supported("refusal");
  fields.not_supported("tool_calls");
  fields.done();
  return out;
}

std::string trimmed(const std::string& text) {
  constexpr const char* kSpace = " \t\r\n\v\f";
  const size_t begin = std::min(text.find_first_not_of(kSpace), text.size());
  return text.substr(begin, text.find_last_not_of(kSpace) + 1 - begin);
}

}  // namespace

ServedModel served_model(std::string name, const data::Tokenizer& tokenizer, int64_t max_length,
                         int64_t vocab_size, int64_t most_texts) {
  ServedModel out{std::move(name), &tokenizer, max_length, vocab_size, 1, most_texts};
  for (int64_t id = 0; id < tokenizer.vocab_size(); ++id) {
    out.longest_piece = std::max(out.longest_piece, std::ssize(tokenizer.piece(id)));
  }
  return out;
}

std::string decode_any(std::span<const int32_t> ids, const ServedModel& model) {
  data::StreamDecoder decoder(*model.tokenizer);
  std::string out;
  for (const int32_t id : ids) {
    out += id < model.tokenizer->vocab_size() ? decoder.push(id) : decoder.flush() + "\uFFFD";
  }
  return out + decoder.flush();
}

std::vector<int32_t> text_prompt(const std::string& text, const std::string& field,
                                 const ServedModel& model) {
  check_bytes(text.size(), field, model);
  return model.tokenizer->encode(text, {.add_bos = model.tokenizer->bos_id() >= 0});
}

std::vector<int32_t> token_ids(const Json& ids, const std::string& field, int64_t vocab_size) {
  std::vector<int32_t> out;
  for (const Json& id : ids.as_array()) {
    if (!id.is_int()) {
      throw bad_field(field, "{}: expected token ids, found {}", field, kind_of(id));
    }
    if (id.as_int() < 0 || id.as_int() >= vocab_size) {
      throw bad_field(field, "{}: token {} is not in the vocabulary: expected 0 to {}", field,
                      id.as_int(), vocab_size - 1);
    }
    out.push_back(static_cast<int32_t>(id.as_int()));
  }
  return out;
}

std::vector<int32_t> chat_prompt(const Json& messages, const ServedModel& model) {
  if (!messages.is_array() || messages.as_array().empty()) {
    throw bad_field("messages", "messages: expected an array of one message or more");
  }
  const data::Tokenizer& tokenizer = *model.tokenizer;
  std::string system;
  std::vector<int32_t> out;
  bool user_next = true;
  size_t bytes = 0;
  for (size_t i = 0; i < messages.as_array().size(); ++i) {
    const std::string at = fmt::format("messages[{}].", i);
    const Message message = read_message(messages.as_array()[i], at);
    check_bytes(bytes += message.text.size(), "messages", model);
    if (message.role == "system") {
      if (i > 0) throw bad_field(at + "role", "{}role: a system message can only be the first", at);
      system = message.text;
      continue;
    }
    if ((message.role == "user") != user_next) {
      throw bad_field(at + "role",
                      "{}role is {}: roles must alternate user/assistant/user/assistant/...", at,
                      message.role);
    }
    const auto ids = user_next ? serve::turn_opening(tokenizer, system, message.text, out.empty())
                               : tokenizer.encode(trimmed(message.text), {.plain = true});
    out.insert(out.end(), ids.begin(), ids.end());
    if (!user_next) out.push_back(static_cast<int32_t>(tokenizer.id_of("<end_of_turn>")));
    user_next = !user_next;
  }
  if (user_next) throw bad_field("messages", "messages: the last one must be of role user");
  return out;
}

}  // namespace mt::http
