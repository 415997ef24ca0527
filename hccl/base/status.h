// Status and Result, with which every room below the C API reports failures. No exception crosses
// the border of a room.
#pragma once

#include <atomic>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace hccl {

// One list for the codes, with the numbers of HcclResult and the texts of HcclGetErrorString.
#define HCCL_CODES(X)                                 \
  X(kSuccess, 0, "no error")                          \
  X(kPara, 1, "parameter error")                      \
  X(kPtr, 2, "empty pointer")                         \
  X(kMemory, 3, "memory error")                       \
  X(kInternal, 4, "internal error")                   \
  X(kNotSupport, 5, "not support feature")            \
  X(kNotFound, 6, "not found specific resource")      \
  X(kUnavail, 7, "resource unavailable")              \
  X(kSyscall, 8, "call system interface error")       \
  X(kTimeout, 9, "timeout")                           \
  X(kOpenFileFailure, 10, "open file fail")           \
  X(kTcpConnect, 11, "tcp connect fail")              \
  X(kRoceConnect, 12, "roce connect fail")            \
  X(kTcpTransfer, 13, "tcp transfer fail")            \
  X(kRoceTransfer, 14, "roce transfer fail")          \
  X(kRuntime, 15, "call runtime api fail")            \
  X(kDrv, 16, "call driver api fail")                 \
  X(kProfiling, 17, "call profiling api fail")        \
  X(kCce, 18, "call cce api fail")                    \
  X(kNetwork, 19, "call network api fail")            \
  X(kAgain, 20, "try again")                          \
  X(kRemote, 21, "error cqe")                         \
  X(kSuspending, 22, "error communicator suspending") \
  X(kOpretryFail, 23, "retry constraint")             \
  X(kOom, 24, "out of memory")

enum class Code : int {
#define HCCL_CODE(name, number, words) name = number,
  HCCL_CODES(HCCL_CODE)
#undef HCCL_CODE
};

/// Returns the short lower-case text of a code, as HcclGetErrorString does.
std::string_view to_string(Code code);

/// Success, or a code with a text for people and, if known, the rank that caused the failure. Cheap
/// to copy; immutable. The text names the ranks, the operation and the remedy.
class [[nodiscard]] Status {
 public:
  static constexpr int kNobody = -1;

  Status() = default;
  Status(Code code, std::string message, int culprit = kNobody);
  Status(const Status& other) noexcept : detail_(other.detail_) {
    if (detail_ != nullptr) share();
  }
  Status(Status&& other) noexcept : detail_(std::exchange(other.detail_, nullptr)) {}
  Status& operator=(Status other) noexcept {
    std::swap(detail_, other.detail_);
    return *this;
  }
  ~Status() {
    if (detail_ != nullptr) drop();
  }

  bool ok() const { return detail_ == nullptr; }
  Code code() const { return detail_ ? detail_->code : Code::kSuccess; }
  /// The rank (in the communicator of the call) that caused the failure, or kNobody.
  int culprit() const { return detail_ ? detail_->culprit : kNobody; }
  const std::string& message() const;
  /// Returns the same failure with `context` in front of the text: "joining: connection refused".
  Status with_context(std::string_view context) const;

 private:
  // A Status is one word, because every operation passes dozens of them. Success is null.
  struct Detail {
    Code code;
    std::string message;
    int culprit;
    mutable std::atomic<int> owners{1};
  };
  [[gnu::cold]] void share() const noexcept;
  [[gnu::cold]] void drop() noexcept;

  const Detail* detail_ = nullptr;
};

/// A value, or the Status that explains its absence.
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}            // NOLINT(google-explicit-constructor)
  Result(Status failure) : status_(std::move(failure)) {}  // NOLINT(google-explicit-constructor)

  bool ok() const { return value_.has_value(); }
  const Status& status() const { return status_; }
  T& value() & { return *value_; }
  const T& value() const& { return *value_; }
  T&& value() && { return std::move(*value_); }
  T* operator->() { return &*value_; }
  const T* operator->() const { return &*value_; }
  T& operator*() & { return *value_; }
  const T& operator*() const& { return *value_; }

 private:
  std::optional<T> value_;
  Status status_;
};

#define HCCL_RETURN_IF_ERROR(expression)                       \
  do {                                                         \
    if (::hccl::Status s_ = (expression); !s_.ok()) return s_; \
  } while (false)

#define HCCL_CONCAT_INNER(a, b) a##b
#define HCCL_CONCAT(a, b) HCCL_CONCAT_INNER(a, b)
#define HCCL_ASSIGN_OR_RETURN(target, expression)                                           \
  auto HCCL_CONCAT(result_, __LINE__) = (expression);                                       \
  if (!HCCL_CONCAT(result_, __LINE__).ok()) return HCCL_CONCAT(result_, __LINE__).status(); \
  target = std::move(HCCL_CONCAT(result_, __LINE__)).value()

}  // namespace hccl
