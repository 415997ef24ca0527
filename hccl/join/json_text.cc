#include "hccl/join/json_text.h"

#include <algorithm>
#include <exception>
#include <nlohmann/json.hpp>
#include <vector>

#include "hccl/base/text.h"

namespace hccl::join {
namespace {

constexpr std::size_t kDepth = 16;
constexpr std::size_t kValues = std::size_t{1} << 20;

// Builds a value from the parser's events; returning false stops the parser. Json::parse() with a
// callback does not suffice: it takes quadratic time for a list of objects.
class Builder final : public Json::json_sax_t {
 public:
  explicit Builder(std::string_view text) : text_(text) {}

  bool null() override { return add(nullptr); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(Json::number_integer_t value) override { return add(value); }
  bool number_unsigned(Json::number_unsigned_t value) override { return add(value); }
  bool number_float(Json::number_float_t value, const std::string&) override { return add(value); }
  bool string(std::string& value) override { return add(std::move(value)); }
  bool binary(Json::binary_t&) override { return stop("binary data"); }
  bool start_object(std::size_t) override { return add(Json::object()); }
  bool start_array(std::size_t) override { return add(Json::array()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool key(std::string& name) override {
    key_ = std::move(name);
    return true;
  }
  bool parse_error(std::size_t position, const std::string&, const Json::exception&) override {
    const auto end = text_.begin() + static_cast<long>(std::min(position, text_.size()));
    const auto line = 1 + std::count(text_.begin(), end, '\n');
    return stop("line " + std::to_string(line) + " (byte " + std::to_string(position) +
                ") is not JSON");
  }

  Result<std::shared_ptr<const Json>> take(bool parsed) {
    if (!parsed) return Status(Code::kPara, why_);
    if (!root_.is_object()) return Status(Code::kPara, "it is no JSON object");
    return std::make_shared<const Json>(std::move(root_));
  }

 private:
  bool stop(std::string why) {
    why_ = std::move(why);
    return false;
  }
  bool close() {
    open_.pop_back();
    return true;
  }
  bool add(Json value) {
    const bool opens = value.is_structured();
    if (opens && open_.size() >= kDepth) {
      return stop("nested deeper than " + std::to_string(kDepth) + " levels");
    }
    if (++values_ > kValues) return stop("more than " + std::to_string(kValues) + " values");
    Json* place = &root_;
    if (open_.empty()) {
      root_ = std::move(value);
    } else if (open_.back()->is_array()) {
      place = &open_.back()->emplace_back(std::move(value));
    } else {
      const auto [at, fresh] = open_.back()->emplace(key_, std::move(value));
      if (!fresh) return stop("an object has the key \"" + shown(key_) + "\" twice");
      place = &*at;
    }
    // The pointer stays valid: no sibling is added while a value is open.
    if (opens) open_.push_back(place);
    return true;
  }

  std::string_view text_;
  Json root_;
  std::vector<Json*> open_;
  std::string key_;
  std::string why_;
  std::size_t values_ = 0;
};

}  // namespace

Result<std::shared_ptr<const Json>> parse_json(std::string_view text) {
  if (text.size() > kJsonBytes) {
    return Status(Code::kPara, std::to_string(text.size()) + " bytes are more than the " +
                                   std::to_string(kJsonBytes) + " allowed");
  }
  try {
    Builder builder(text);
    return builder.take(Json::sax_parse(text.begin(), text.end(), &builder));
  } catch (const std::exception& failure) {  // the only cause is a lack of memory
    return Status(Code::kMemory, std::string("reading JSON: ") + failure.what());
  }
}

}  // namespace hccl::join
