// Data that is changed on its way. The connection of two ranks passes through the test's proxy,
// which knows where frames (and TLS records) begin and end.
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <atomic>
#include <cstring>
#include <functional>
#include <random>
#include <thread>

#include "hccl/base/bytes.h"
#include "hccl/base/crc32c.h"
#include "hccl/base/socket.h"
#include "tests/support/blocking.h"
#include "tests/support/ranks.h"
#include "tests/transport/loopback.h"
#include "transport/tcp/frame.h"
#include "transport/tcp/tcp.h"

namespace hccl::transport {
namespace {

using tcp::FrameHeader;
using tcp::FrameType;
using tcp::SummedHeader;
using testing::pattern;
using testing::Rank;
using testing::run_ranks;
using testing::wait_all;
using namespace std::chrono_literals;
using Bytes = std::vector<std::byte>;

/// Returns the bytes that replace a unit (a frame, or a record of TLS). `from` is the rank that
/// sent the unit.
using Edit = std::function<std::string(int from, std::string unit)>;

std::size_t head_size(Wire wire) {
  return wire == Wire::kTls ? 5 : wire == Wire::kCrc ? sizeof(SummedHeader) : sizeof(FrameHeader);
}

FrameHeader header_of(const std::string& unit) {
  FrameHeader header;
  std::memcpy(&header, unit.data(), sizeof header);
  return header;
}

/// The length of the unit that begins here; if the unit is incomplete, more than bytes.size().
std::size_t unit_size(Wire wire, const std::string& bytes) {
  if (bytes.size() < head_size(wire)) return head_size(wire);
  if (wire == Wire::kTls) {
    return 5 + 256 * static_cast<std::size_t>(static_cast<unsigned char>(bytes[3])) +
           static_cast<unsigned char>(bytes[4]);
  }
  const FrameHeader header = header_of(bytes);
  const bool has_payload = header.type == FrameType::kEager || header.type == FrameType::kData;
  return head_size(wire) + (has_payload ? header.length : 0);
}

/// A proxy between rank 1, which connects, and rank 0. Until arm() it passes bytes unchanged, and
/// after that units, each changed by `edit`. It cuts the connection if the edit requests that, or
/// if nothing has passed for a while.
class Proxy {
 public:
  Proxy(Wire wire, Edit edit) : wire_(wire), edit_(std::move(edit)) {
    auto listener = listen_tcp(kAddress, 0);
    EXPECT_TRUE(listener.ok()) << listener.status().message();
    listener_ = std::move(*listener);
  }
  ~Proxy() { stop_ = true; }

  std::uint16_t port() const { return listener_.port; }
  void lead_to(std::uint16_t port) {
    thread_ = std::jthread([this, port] { run(port); });
  }
  void arm() { armed_ = true; }
  /// Returns whether the proxy has cut the connection because nothing passed for a while.
  bool cut() const { return cut_; }

 private:
  void run(std::uint16_t port) {
    const Deadline soon = Deadline::after(20s);
    if (!wait_fd(listener_.fd.get(), POLLIN, soon).ok()) return;
    auto client = accept_one(listener_.fd.get());
    auto server = connect_tcp(kAddress, port, soon);
    if (!client.ok() || !server.ok()) return;
    const std::array<int, 2> ends{server->get(), client->get()};
    std::array<bool, 2> open{true, true};
    Deadline quiet = Deadline::after(kQuiet);
    while ((open[0] || open[1]) && !stop_ && !(armed_ && quiet.expired())) {
      std::array<pollfd, 2> polled{};
      for (std::size_t end = 0; end < 2; ++end)
        polled[end] = {open[end] ? ends[end] : -1, POLLIN, 0};
      if (::poll(polled.data(), 2, 20) <= 0) continue;
      for (std::size_t end = 0; end < 2; ++end) {
        if (polled[end].revents == 0) continue;
        open[end] = pass(static_cast<int>(end), ends[end], ends[1 - end]);
        quiet = Deadline::after(kQuiet);
      }
    }
    cut_ = (open[0] || open[1]) && !stop_;
  }

  /// Passes on the bytes of one read; returns false once this direction has ended.
  bool pass(int from, int in, int out) {
    std::array<char, 65536> bytes;
    const ssize_t got = ::recv(in, bytes.data(), bytes.size(), 0);
    if (got < 0 && errno == EAGAIN) return true;
    std::string& held = held_[static_cast<std::size_t>(from)];
    if (got <= 0) {
      ::shutdown(out, SHUT_WR);
      return false;
    }
    held.append(bytes.data(), static_cast<std::size_t>(got));
    std::string passed;
    if (!armed_) {
      passed = std::exchange(held, {});
    } else {
      for (std::size_t size = 0; (size = unit_size(wire_, held)) <= held.size() && !held.empty();) {
        passed += edit_(from, held.substr(0, size));
        held.erase(0, size);
      }
    }
    return send_all(out, passed, Deadline::after(5s)).ok() || true;
  }

  static constexpr std::chrono::milliseconds kQuiet{150};
  Wire wire_;
  Edit edit_;
  Listener listener_;
  std::atomic<bool> armed_{false};
  std::atomic<bool> stop_{false};
  std::atomic<bool> cut_{false};
  std::array<std::string, 2> held_;
  std::jthread thread_;
};

std::uint16_t port_in(const std::string& blob) {
  ByteReader outer(blob);
  outer.get<std::int32_t>();
  const std::string part = outer.get_text(1000);
  return ByteReader(part).get<std::uint16_t>();
}
std::string with_port(std::uint16_t port) {
  return ByteWriter()
      .put(std::int32_t{0})
      .put_text(ByteWriter().put(port).put_text(kAddress).take())
      .take();
}

/// The results of the two ranks.
struct Outcome {
  int wrong = 0;  /// messages that succeeded with other bytes than were sent
  std::array<Status, 2> end;
  bool cut = false;  /// the proxy cut the connection because nothing passed
};

/// Exchanges messages of all kinds in both directions. On each rank one more receive waits for a
/// message that never comes, and ends with the link.
void exchange(Mesh& mesh, Rank& rank, int& wrong, Status& end) {
  const std::array<std::size_t, 9> sizes{0, 10, 1000, 60'000, 65'537, 300'000, 7, 600'000, 40'000};
  const int peer = 1 - rank.rank();
  std::vector<Request> requests(2 * sizes.size() + 1);
  std::vector<Bytes> bytes(2 * sizes.size());
  std::vector<Request*> all;
  for (Request& request : requests) all.push_back(&request);
  Bytes nothing(1);
  mesh.recv(requests.back(), peer, 9, nothing);
  const auto message = [&](int from, std::size_t i) {
    return pattern(sizes[i], 100 * static_cast<std::uint64_t>(from) + i);
  };
  // Rank 0 posts its sends first, rank 1 its receives. So some large messages are announced (kAsk),
  // and others find a posted receive (kReady).
  for (const bool sends : {rank.rank() == 0, rank.rank() == 1}) {
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      const std::size_t at = 2 * i + (sends ? 1 : 0);
      const auto lane = static_cast<std::uint32_t>(i % 3);
      bytes[at] = sends ? message(rank.rank(), i) : Bytes(sizes[i]);
      if (sends) mesh.send(requests[at], peer, lane, bytes[at]);
      if (!sends) mesh.recv(requests[at], peer, lane, bytes[at]);
      mesh.progress();
    }
  }
  static_cast<void>(wait_all(mesh, all, 20s));
  end = requests.back().status();
  EXPECT_TRUE(requests.back().done());
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const Request& received = requests[2 * i];
    if (received.done() && received.status().ok() && bytes[2 * i] != message(peer, i)) ++wrong;
  }
  mesh.abort(Status(Code::kSuspending, "end of the test"));
  mesh.progress();
}

Outcome through_proxy(Wire wire, Edit edit) {
  Outcome outcome;
  std::array<int, 2> wrong{};
  Proxy proxy(wire, std::move(edit));
  run_ranks(2, [&](Rank& rank) {
    OpenArgs args = rank.open_args(Deadline::after(20s));
    Config config;
    config.wire = wire;
    args.config = &config;
    const BootstrapExchange usual = args.exchange;
    args.exchange = [&](std::string mine, Deadline deadline) {
      auto all = usual(std::move(mine), deadline);
      if (rank.rank() == 1 && all.ok()) {
        proxy.lead_to(port_in((*all)[0]));
        (*all)[0] = with_port(proxy.port());
      }
      return all;
    };
    auto mesh = open_tcp(args);
    ASSERT_TRUE(mesh.ok()) << mesh.status().message();
    ASSERT_TRUE(connect_all(**mesh).ok());
    rank.barrier();
    proxy.arm();
    rank.barrier();
    const auto me = static_cast<std::size_t>(rank.rank());
    exchange(**mesh, rank, wrong[me], outcome.end[me]);
    rank.barrier();
  });
  outcome.wrong = wrong[0] + wrong[1];
  outcome.cut = proxy.cut();
  return outcome;
}

/// Flips a bit of the first unit for which `chosen` returns true.
struct Flip {
  std::function<bool(int from, const std::string& unit)> chosen;
  std::size_t at;  ///< which byte
  int bit = 0;
  bool* done;
  std::string operator()(int from, std::string unit) const {
    if (*done || at >= unit.size() || !chosen(from, unit)) return unit;
    *done = true;
    unit[at] = static_cast<char>(unit[at] ^ (1 << bit));
    return unit;
  }
};

void expect_both(const Outcome& outcome, const std::string& words) {
  EXPECT_EQ(outcome.wrong, 0);
  for (std::size_t rank = 0; rank < 2; ++rank) {
    const Status& end = outcome.end[rank];
    EXPECT_EQ(end.code(), Code::kRemote) << end.message();
    EXPECT_EQ(end.culprit(), static_cast<int>(1 - rank));
    EXPECT_NE(end.message().find(words), std::string::npos) << end.message();
    EXPECT_NE(end.message().find("rank 0"), std::string::npos) << end.message();
    EXPECT_NE(end.message().find("rank 1"), std::string::npos) << end.message();
  }
}

constexpr std::array kTypes{FrameType::kEager, FrameType::kAsk, FrameType::kReady, FrameType::kData,
                            FrameType::kCredit};

TEST(WireCrc, WhatIsNotAlteredPasses) {
  for (const Wire wire : {Wire::kPlain, Wire::kCrc, Wire::kTls}) {
    const Outcome outcome = through_proxy(wire, [](int, std::string unit) { return unit; });
    expect_both(outcome, "closed its connection");  // in the end the proxy closes it
  }
}

// Without protection, a changed bit of the payload is not found. This shows that the proxy works.
TEST(WireCrc, PlainDoesNotNotice) {
  bool done = false;
  const auto chosen = [](int, const std::string& unit) {
    return header_of(unit).type == FrameType::kData;
  };
  EXPECT_EQ(through_proxy(Wire::kPlain, Flip{chosen, 1000, 3, &done}).wrong, 1);
  EXPECT_TRUE(done);
}

TEST(WireCrc, ABitOfEachFieldOfEachFrameIsFound) {
  // Type, lane, reserved, sequence, length, both sums, payload.
  constexpr std::size_t kFields[] = {0, 1, 2, 4, 7, 8, 9, 15, 16, 19, 20, 23, 24, 500};
  for (const FrameType type : kTypes) {
    for (const std::size_t at : kFields) {
      const bool has_payload = type == FrameType::kEager || type == FrameType::kData;
      if (at >= 24 && !has_payload) continue;
      for (const int from : {0, 1}) {
        SCOPED_TRACE("type " + std::to_string(static_cast<int>(type)) + ", byte " +
                     std::to_string(at) + ", from rank " + std::to_string(from));
        bool done = false;
        const auto chosen = [&](int sender, const std::string& unit) {
          return sender == from && header_of(unit).type == type;
        };
        const Outcome outcome =
            through_proxy(Wire::kCrc, Flip{chosen, at, static_cast<int>(at) % 8, &done});
        // Depending on the order of posting, a rank may send no kAsk or kCredit.
        if (!done && (type == FrameType::kAsk || type == FrameType::kCredit)) continue;
        EXPECT_TRUE(done);
        expect_both(outcome, "corrupted");
      }
    }
  }
}

/// Makes one of many changes to the unit with the chosen number and direction; the other units
/// pass.
struct Attack {
  unsigned seed;
  Wire wire;
  bool sums = false;  /// correct the checksums, as far as a stranger can
  int from = 0;
  int number = 0;
  int seen = 0;
  std::string held;
  bool done = false;
  const char* name = "none";

  Attack(unsigned with, Wire over, bool resum) : seed(with), wire(over), sums(resum) {
    std::mt19937 random(seed);
    from = static_cast<int>(random() % 2);
    number = static_cast<int>(random() % 12);
  }

  void sum(std::string& unit) const {
    if (!sums || unit.size() < sizeof(SummedHeader)) return;
    SummedHeader frame;
    std::memcpy(&frame, unit.data(), sizeof frame);
    frame.sums.payload =
        crc32c(0, std::as_bytes(std::span(unit)).subspan(sizeof frame, unit.size() - sizeof frame));
    // A repeated or swapped frame keeps its checksum. A changed frame needs a checksum that
    // includes the frame's number. A proxy that has not counted frames does not know this number.
    frame.sums.header = tcp::header_sum(frame, 1000);
    std::memcpy(unit.data(), &frame, sizeof frame);
  }

  std::string operator()(int sender, std::string unit) {
    if (sender != from) return unit;
    if (!held.empty()) return unit + std::exchange(held, {});
    if (seen++ != number) return unit;
    done = true;
    std::mt19937 random(seed + 1'000'000);
    const std::size_t at = random() % unit.size();
    switch (random() % 7) {
      case 0:
        name = "drop";
        return {};
      case 1:
        name = "repeat";
        return unit + unit;
      case 2:
        name = "swap";
        held = unit;
        return {};
      case 3:
        name = "truncate";
        return unit.substr(0, at);
      case 4:
        name = "insert";
        return unit.substr(0, at) + "?" + unit.substr(at);
      case 5:
        name = "leave out";
        return unit.substr(0, at) + unit.substr(at + 1);
      default:
        name = "flip";
        unit[at] = static_cast<char>(unit[at] ^ (1 << random() % 8));
        sum(unit);
        return unit;
    }
  }
};

void attack(Wire wire, bool sums, unsigned seeds) {
  unsigned attacked = 0;
  unsigned noticed = 0;
  for (unsigned seed = 0; seed < seeds; ++seed) {
    Attack one(seed, wire, sums);
    const Outcome outcome = through_proxy(wire, std::ref(one));
    SCOPED_TRACE("seed " + std::to_string(seed) + ": " + one.name + " of unit " +
                 std::to_string(one.number) + " from rank " + std::to_string(one.from));
    EXPECT_EQ(outcome.wrong, 0);
    attacked += one.done ? 1 : 0;
    const auto says = [&](std::size_t rank) {
      return outcome.end[rank].message().find("corrupted") != std::string::npos;
    };
    noticed += says(0) || says(1) ? 1 : 0;
    // A gap is found only when more bytes follow. Otherwise the proxy has cut the connection. On a
    // busy machine it may do so before the rank that found the gap has informed the other rank.
    if (!outcome.cut || (says(0) && says(1))) {
      expect_both(outcome, "corrupted");
    } else {
      expect_both(outcome, "connection");
    }
    if (::testing::Test::HasFailure()) return;
  }
  EXPECT_GT(attacked, seeds * 9 / 10);
  EXPECT_GT(noticed, attacked / 2);
}

TEST(WireCrc, AlteredStreamsAreFound) { attack(Wire::kCrc, false, 100); }
TEST(WireCrc, RightSumsOfOtherPlacesAreFound) { attack(Wire::kCrc, true, 50); }
TEST(WireTls, AlteredStreamsAreFound) { attack(Wire::kTls, false, 200); }

TEST(WireTls, NothingCanBeRead) {
  std::atomic<bool> found{false};
  const Bytes sent = pattern(1000, 2);  // rank 0's third message
  const std::string text(reinterpret_cast<const char*>(sent.data()), 64);
  const auto look = [&](int, std::string unit) {
    if (unit.find(text) != std::string::npos) found = true;
    return unit;
  };
  through_proxy(Wire::kPlain, look);
  EXPECT_TRUE(found.exchange(false));
  through_proxy(Wire::kTls, look);
  EXPECT_FALSE(found);
}

}  // namespace
}  // namespace hccl::transport
