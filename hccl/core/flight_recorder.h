// The last operations of a communicator: always recorded, and written to a file when the
// communicator fails.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "hccl/base/cache_hints.h"
#include "hccl/base/call.h"
#include "hccl/base/pages.h"
#include "hccl/base/status.h"
#include "hccl/base/ticks.h"

namespace hccl::core {

/// Only the thread that runs the operations may use a recorder.
class FlightRecorder {
 public:
  static constexpr std::size_t kOps = 2048;

  /// Throws std::bad_alloc.
  FlightRecorder();
  FlightRecorder(const FlightRecorder&) = delete;
  FlightRecorder& operator=(const FlightRecorder&) = delete;

  /// Touches the memory now, so that no operation waits for page faults.
  void take_memory();

  /// Records the beginning of an operation, and returns the operation's number for end().
  /// `algorithm` is a short name that must live as long as the program.
  std::uint64_t begin(const Envelope& call, std::string_view algorithm) {
    Record& record = records_[begun_ % kOps];
    record.call = call;
    record.set_algorithm(algorithm);
    record.start = record.end = ticks();
    record.ended = false;
    return begun_++;
  }
  void end(std::uint64_t number, Code result) {
    Record& record = records_[number % kOps];
    record.end = ticks();
    record.ended = true;
    record.result = result;
  }
  /// As end() above, for operations that choose their algorithm while they run. If `brief`, the
  /// operation was very short: the recorder uses the start time as the end time, which saves
  /// reading the clock.
  void end(std::uint64_t number, Code result, std::string_view algorithm, bool brief) {
    Record& record = records_[number % kOps];
    if (!brief) record.end = ticks();
    record.set_algorithm(algorithm);
    record.ended = true;
    record.result = result;
    will_write(reinterpret_cast<std::byte*>(&records_[begun_ % kOps]), sizeof(Record));
  }

  /// Returns a text that describes the last operation, or "no operation".
  std::string last() const {
    return begun_ == 0 ? "no operation" : to_string(records_[(begun_ - 1) % kOps].call);
  }
  /// The names of the files begin with this text.
  static constexpr std::string_view kPrefix = "hccl-flight-";
  /// Removes this user's oldest records from the directory until `number` are left.
  static void keep_latest(const std::string& directory, std::size_t number);
  /// Writes the recorded operations as JSON, oldest first. kOpenFileFailure: the file cannot be
  /// written; the text has the path.
  Status dump(const std::string& path, const std::string& communicator, int rank, int size,
              const Status& why) const;

 private:
  using Clock = std::chrono::system_clock;
  /// One cache line.
  struct alignas(kCacheLine) Record {
    void set_algorithm(std::string_view name) {
      algorithm = name.data();
      algorithm_size = static_cast<std::uint8_t>(name.size());
    }
    Envelope call;
    const char* algorithm = nullptr;
    std::uint64_t start = 0;  // ticks
    std::uint64_t end = 0;
    Code result = Code::kSuccess;
    std::uint8_t algorithm_size = 0;
    bool ended = false;
  };
  /// Converts a count of ticks to microseconds since 1970.
  std::int64_t microseconds(std::uint64_t at) const;

  Clock::time_point began_;
  std::uint64_t began_ticks_;
  // Mapped pages go back to the system when the communicator ends. An allocator would keep this
  // memory, and its heap would become fragmented.
  Pages pages_;
  Record* records_;
  std::uint64_t begun_ = 0;
};

}  // namespace hccl::core
