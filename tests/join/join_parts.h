// Parts that the tests of joining, groups and leaving share: a root with ranks that join, and a
// holder of the secret that sends any bytes.
#pragma once

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "hccl/base/tls.h"
#include "hccl/control/seek.h"
#include "hccl/control/wire.h"
#include "tests/support/blocking.h"
#include "tests/support/config.h"
#include "tests/support/control.h"
#include "tests/support/processes.h"

namespace hccl::testing {

// A rank that is late by this much counts as absent.
inline constexpr std::chrono::seconds kShort{3};
// Much less than the minute for which ranks wait for one another. The tests add the lateness of the
// machine.
inline constexpr std::chrono::seconds kSoon{10};

inline Config config_of(std::chrono::seconds patience) { return quiet_config("auto", patience); }

inline bool has(const Status& status, const std::string& words) {
  return status.message().find(words) != std::string::npos;
}

inline Call sum(std::vector<float>& data) {
  return {Op::kAllReduce, data.data(), data.data(), data.size()};
}

// Stores the failures that a rank gets.
class Ear final : public join::FailureListener {
 public:
  void on_failure(const Uuid&, const Status& why) override {
    const std::lock_guard lock(mutex_);
    heard_.push_back(why);
  }
  void on_summons(const Uuid&) override {}
  /// The first failure whose text has these words.
  std::optional<Status> heard(const std::string& words = "") const {
    const std::lock_guard lock(mutex_);
    const auto at =
        std::ranges::find_if(heard_, [&](const Status& why) { return has(why, words); });
    return at == heard_.end() ? std::nullopt : std::optional(*at);
  }
  /// Waits for a failure whose text has these words.
  Status hears(const std::string& words = "") const {
    EXPECT_TRUE(eventually([&] { return heard(words).has_value(); })) << words;
    return heard(words).value_or(Status());
  }

 private:
  mutable std::mutex mutex_;
  std::vector<Status> heard_;
};

// A connection by a holder of the secret, which may send any bytes.
class Secured {
 public:
  Secured(Fd fd, const join::RootInfo& info) : fd_(std::move(fd)) {
    auto context = make_tls_context();
    auto stream = TlsStream::create(context.value(), TlsStream::Side::kClient, fd_.get(),
                                    tls_key(info.secret, info.id, "control"));
    stream_ = std::make_unique<TlsStream>(std::move(*stream));
    EXPECT_TRUE(handshake(*stream_, fd_.get(), Deadline::after(std::chrono::seconds(30))).ok());
  }
  Status send(std::string_view bytes) {
    return send_all(*stream_, fd_.get(), bytes, Deadline::after(std::chrono::seconds(30)));
  }
  Status send_frame(std::string_view bytes) { return send(ByteWriter().put_text(bytes).take()); }
  Status receive(std::span<char> out) {
    return recv_all(*stream_, fd_.get(), out, Deadline::after(std::chrono::seconds(30)));
  }

 private:
  Fd fd_;
  std::unique_ptr<TlsStream> stream_;
};

// A root, and ranks that join on threads of their own. The root's node becomes rank 0's, as in a
// job whose rank 0 has made the root info.
class Meeting {
 public:
  explicit Meeting(std::chrono::seconds patience = std::chrono::seconds(60))
      : Meeting(config_of(patience)) {}
  explicit Meeting(const Config& config) : config_(config) {
    root_ = start_root(control_, info, config_);
  }
  ~Meeting() {
    for (auto& thread : threads_) thread.join();
  }

  /// Starts to join; done() has the result.
  void come(int rank, int size) { come(rank, size, config_, info); }
  void come(int rank, int size, const Config& config, const join::RootInfo& with) {
    come(rank, size, config, rank == 0 ? root_ : new_node(control_, with));
  }
  /// Joins as a rank whose process is not the root's.
  void come_apart(int rank, int size, const std::shared_ptr<join::Control>& control) {
    come(rank, size, config_, new_node(control, info));
  }
  struct Came {
    Status status;
    std::chrono::nanoseconds took{0};
    std::shared_ptr<join::World> control;
  };
  /// Waits for all ranks; returns them in the order of come().
  const std::vector<std::unique_ptr<Came>>& done() {
    for (auto& thread : threads_) thread.join();
    threads_.clear();
    return results_;
  }

  /// Waits until this many ranks have ended.
  void await_ended(int ranks) const {
    EXPECT_TRUE(eventually([&] { return ended_ >= ranks; }));
  }

  /// A connection to the root.
  Fd connect() const {
    auto fd = connect_tcp(info.address, info.port, Deadline::after(std::chrono::seconds(30)));
    EXPECT_TRUE(fd.ok()) << fd.status().message();
    return fd.ok() ? std::move(*fd) : Fd();
  }
  /// A connection to the root by a holder of the secret.
  std::unique_ptr<Secured> connect_as_member() const {
    return std::make_unique<Secured>(connect(), info);
  }
  const Config& config() const { return config_; }
  const std::shared_ptr<join::Control>& control() { return control_; }
  void end_root() { root_.reset(); }

  join::RootInfo info = new_root_info();

 private:
  void come(int rank, int size, const Config& config, const std::shared_ptr<join::Node>& node) {
    const std::size_t place = results_.size();
    results_.emplace_back(std::make_unique<Came>());
    threads_.emplace_back([=, this] {
      const auto begun = Deadline::Clock::now();
      auto world = join::World::join(node, size, rank, config, make_logger("off", "rank"));
      results_[place]->took = Deadline::Clock::now() - begun;
      results_[place]->status = world.status();
      if (world.ok()) results_[place]->control = *world;
      ++ended_;
    });
  }

  Config config_;
  std::shared_ptr<join::Control> control_ = make_control();
  std::shared_ptr<join::Node> root_;
  std::atomic<int> ended_{0};
  std::vector<std::unique_ptr<Came>> results_ = reserved();
  std::vector<std::thread> threads_;

  // The threads keep references to the results, so the vector must not grow.
  static std::vector<std::unique_ptr<Came>> reserved() {
    std::vector<std::unique_ptr<Came>> places;
    places.reserve(64);
    return places;
  }
};

// Kinds of frames; each is the first byte.
inline constexpr std::uint8_t kAsk = control::kFirstJoinKind, kRefused = kAsk + 5;

// The request of a process for a seat in the tree.
inline std::string hello(std::uint32_t rank, std::uint32_t size, const std::string& agreement,
                         std::uint32_t version = control::kJoinVersion) {
  control::Roster own;
  own.hosts.push_back({"elsewhere", "", "127.0.0.1"});
  own.nodes.push_back({0, 0, 0, 1, 0, {rank}});
  ByteWriter out;
  out.put(kAsk).put(version).put(size).put_text(agreement);
  put(out, own);
  return out.take();
}

inline std::string next_answer(Secured& member) {
  std::uint32_t length = 0;
  EXPECT_TRUE(member.receive({reinterpret_cast<char*>(&length), sizeof length}).ok());
  EXPECT_LE(length, 4096U);
  std::string answer(std::min(length, 4096U), '\0');
  EXPECT_TRUE(member.receive(answer).ok());
  return answer;
}

/// Waits until the root has handled all frames that came before: it handles them before it closes
/// the line of a wrong frame.
inline void settle(const Meeting& meeting) {
  const auto wrong = meeting.connect_as_member();
  EXPECT_TRUE(wrong->send_frame("wrong").ok());
  char end = 0;
  EXPECT_FALSE(wrong->receive(std::span(&end, 1)).ok());
}

inline void expect_all_in(Meeting& meeting, std::size_t ranks) {
  for (std::size_t i = 0; i < ranks; ++i) {
    EXPECT_TRUE(meeting.done()[i]->status.ok()) << meeting.done()[i]->status.message();
  }
}

// The descriptors of this process whose other end is the root's port.
inline std::vector<int> ends_at_root(const join::RootInfo& info) {
  std::vector<int> found;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    const int fd = std::stoi(entry.path().filename());
    sockaddr_in peer{};
    socklen_t size = sizeof peer;
    if (::getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &size) == 0 &&
        peer.sin_family == AF_INET && peer.sin_port == htons(info.port)) {
      found.push_back(fd);
    }
  }
  return found;
}

}  // namespace hccl::testing
