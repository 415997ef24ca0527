// The data that other ranks publish while a transport is opened: addresses and ports, shared
// memory, refusals. This rank connects to no other rank.
#include <algorithm>

#include "split/engine/window.h"
#include "tests/fuzz/fuzz.h"
#include "tests/support/config.h"
#include "tests/support/siblings.h"
#include "transport/shm/shm.h"
#include "transport/tcp/tcp.h"

namespace {

using namespace hccl;
using namespace hccl::transport;

constexpr int kRanks = 3;

/// The parts of all ranks. Other ranks' parts are the fuzzer's bytes, or these bytes in the form
/// that a rank without a failure sends.
Result<std::vector<std::string>> parts_of(fuzz::Input& input, int rank, const std::string& mine) {
  const std::uint8_t what = input.byte();
  if (what == 255) return Status(Code::kTimeout, "ranks that did not come: 1");
  std::vector<std::string> parts;
  const int number = what < 240 ? kRanks : what % 8;
  while (static_cast<int>(parts.size()) < number) {
    if (static_cast<int>(parts.size()) == rank) {
      parts.push_back(mine);
      continue;
    }
    const bool plain = input.byte() % 2 == 0;
    std::string part(input.bytes(input.byte()));
    if (!plain) {
      part = ByteWriter().put(std::int32_t{0}).put_text(part).take();
      if (what % 2 == 0) part = ByteWriter().put(std::int32_t{0}).put_text(part).take();
    }
    parts.push_back(std::move(part));
  }
  return parts;
}

void window(fuzz::Input& input) {
  constexpr std::size_t kGradients = 3, kSegments = 2;
  std::deque<split::Times> past;
  split::Times now;
  for (std::uint64_t number = 1; number <= 3; ++number) {
    split::Times times;
    times.number = number;
    times.overlapped = number % 2 == 0;
    times.ready.assign(kGradients, 5);
    times.start.assign(kSegments, 6);
    times.end.assign(kSegments, 9);
    times.wait_for_peer.assign(kSegments, 0);
    if (number < 3) {
      past.push_back(times);
    } else {
      now = times;
    }
  }
  const split::Iterations iterations = split::iterations_of(now, past, 0);
  std::vector<double> message = split::message_of(iterations, kGradients, kSegments);
  for (double& each : message) {
    const std::uint64_t bits = input.get<std::uint64_t>();
    if (bits != 0) std::memcpy(&each, &bits, sizeof each);
  }
  static_cast<void>(split::window_of(message, iterations, kGradients, kSegments));
}

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::Input input(data, size);
  const std::uint8_t what = input.byte();
  if (what % 4 == 3) {
    window(input);
    return 0;
  }
  const Config config = testing::quiet_config("tcp");
  OpenArgs args;
  args.size = kRanks;
  args.hosts = {0, 0, 1};
  args.address = "127.0.0.1";
  args.deadline = Deadline::after(std::chrono::nanoseconds(0));
  args.config = &config;
  args.siblings = testing::siblings();
  args.exchange = [&](const std::string& mine, Deadline) {
    return parts_of(input, args.rank, mine);
  };
  args.rank = what % 4 == 2 ? 1 : 0;  // rank 1 is a member in shm
  const auto mesh = what % 4 == 0 ? open_tcp(args) : open_shm_on_host(args);
  PROMISE(!mesh.ok());  // no other rank is there
  return 0;
}
