#include "hccl/base/status.h"

#include <cstddef>
#include <new>

namespace hccl {

std::string_view to_string(Code code) {
  switch (code) {
#define HCCL_CODE(name, number, text) \
  case Code::name:                    \
    return text;
    HCCL_CODES(HCCL_CODE)
#undef HCCL_CODE
  }
  return "unknown error";
}

Status::Status(Code code, std::string message, int culprit)
    : detail_(code == Code::kSuccess ? nullptr : new Detail{code, std::move(message), culprit}) {}

void Status::share() const noexcept { detail_->owners.fetch_add(1, std::memory_order_relaxed); }

void Status::drop() noexcept {
  if (detail_->owners.fetch_sub(1, std::memory_order_acq_rel) == 1) delete detail_;
}

const std::string& Status::message() const {
  // The empty text is never destroyed, because threads outlive main(). It needs no allocation.
  alignas(std::string) static std::byte place[sizeof(std::string)];
  static const auto* const none = new (place) std::string;
  return detail_ ? detail_->message : *none;
}

Status Status::with_context(std::string_view context) const {
  if (ok()) return *this;
  return Status(code(), std::string(context) + ": " + message(), culprit());
}

}  // namespace hccl
