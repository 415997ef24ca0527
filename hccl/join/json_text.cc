#include "hccl/join/json_text.h"

#include <algorithm>
#include <exception>
#include <nlohmann/json.hpp>

#include "hccl/base/text.h"

namespace hccl::join {
namespace {

using Json = nlohmann::json;

// Builds JsonNodes from the parser's events; returning false stops the parser.
class Builder final : public Json::json_sax_t {
 public:
  Builder(std::string_view text, const JsonLimits& limits) : text_(text), limits_(limits) {}

  bool null() override { return add(JsonNode::Type::kNull) != nullptr; }
  bool boolean(bool) override { return add(JsonNode::Type::kBoolean) != nullptr; }
  bool number_integer(Json::number_integer_t) override { return number(); }
  bool number_unsigned(Json::number_unsigned_t) override { return number(); }
  bool number_float(Json::number_float_t, const std::string&) override { return number(); }
  bool string(std::string& value) override {
    JsonNode* node = add(JsonNode::Type::kString);
    if (node != nullptr) node->text = std::move(value);
    return node != nullptr;
  }
  bool binary(Json::binary_t&) override { return stop("binary data"); }

  bool start_object(std::size_t) override { return open(JsonNode::Type::kObject); }
  bool start_array(std::size_t) override { return open(JsonNode::Type::kArray); }
  bool end_array() override {
    open_.pop_back();
    return true;
  }
  bool key(std::string& name) override {
    key_ = std::move(name);
    return true;
  }
  bool end_object() override {
    std::vector<std::string_view> names;
    for (const JsonNode& child : open_.back()->children) names.push_back(child.key);
    std::sort(names.begin(), names.end());
    const auto twice = std::adjacent_find(names.begin(), names.end());
    if (twice != names.end()) {
      return stop("an object has the key \"" + shown(*twice) + "\" twice");
    }
    open_.pop_back();
    return true;
  }
  bool parse_error(std::size_t position, const std::string&, const Json::exception&) override {
    const auto end = text_.begin() + static_cast<long>(std::min(position, text_.size()));
    const auto line = 1 + std::count(text_.begin(), end, '\n');
    return stop("line " + std::to_string(line) + " (byte " + std::to_string(position) +
                ") is not JSON");
  }

  Result<JsonNode> take(bool parsed) {
    if (!parsed) return Status(Code::kPara, why_.empty() ? "not JSON" : why_);
    return std::move(root_);
  }

 private:
  bool stop(std::string why) {
    why_ = std::move(why);
    return false;
  }
  bool number() { return add(JsonNode::Type::kNumber) != nullptr; }
  JsonNode* add(JsonNode::Type type) {
    if (++values_ > limits_.values) {
      stop("more than " + std::to_string(limits_.values) + " values");
      return nullptr;
    }
    JsonNode& node = open_.empty() ? root_ : open_.back()->children.emplace_back();
    node.type = type;
    node.key = std::move(key_);
    key_.clear();
    return &node;
  }
  bool open(JsonNode::Type type) {
    if (open_.size() >= limits_.depth) {
      return stop("nested deeper than " + std::to_string(limits_.depth) + " levels");
    }
    JsonNode* node = add(type);
    if (node == nullptr) return false;
    // The pointer stays valid: no sibling is added while a node is open.
    open_.push_back(node);
    return true;
  }

  std::string_view text_;
  const JsonLimits& limits_;
  JsonNode root_;
  std::vector<JsonNode*> open_;
  std::string key_;
  std::string why_;
  std::size_t values_ = 0;
};

}  // namespace

const JsonNode* JsonNode::find(std::string_view name) const {
  for (const JsonNode& child : children) {
    if (child.key == name) return &child;
  }
  return nullptr;
}

Result<JsonNode> parse_json(std::string_view text, const JsonLimits& limits) {
  if (text.size() > limits.bytes) {
    return Status(Code::kPara, std::to_string(text.size()) + " bytes are more than the " +
                                   std::to_string(limits.bytes) + " allowed");
  }
  try {
    Builder builder(text, limits);
    return builder.take(Json::sax_parse(text.begin(), text.end(), &builder));
  } catch (const std::exception& failure) {  // the only cause is a lack of memory
    return Status(Code::kMemory, std::string("reading JSON: ") + failure.what());
  }
}

}  // namespace hccl::join
