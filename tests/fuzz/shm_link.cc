// Two rings in shared memory whose other end is hostile: it writes any frames, positions and bytes.
// No byte is read outside of a ring or written outside of a receive, and staging is bounded.
#include <memory>
#include <vector>

#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/posted.h"
#include "transport/shm/link.h"

namespace {

using namespace hccl;
using namespace hccl::transport;
using namespace hccl::transport::shm;

constexpr std::uint64_t kRing = 4096;

struct Ring {
  RingControl control;
  alignas(kLine) std::byte bytes[kRing] = {};
  RingBytes view() { return {bytes, kRing}; }
};

class Harness {
 public:
  explicit Harness(fuzz::Input input)
      : input_(input),
        link_(0, 1, RingWriter(&out_->control, out_->view()),
              RingReader(&in_->control, in_->view()), &state_, -1),
        peer_(&in_->control, in_->view()) {}

  void run() {
    for (int steps = 0; !input_.empty() && steps < 400; ++steps) {
      step();
      link_.progress();
    }
    link_.fail(Status(Code::kRemote, "over"));
    for (const auto& each : posted_) PROMISE(each->request.done());
  }

 private:
  void step() {
    const std::uint8_t what = input_.byte();
    switch (what % 8) {
      case 0:
      case 1: {
        auto& each = *posted_.emplace_back(std::make_unique<fuzz::Posted>(size_of()));
        each.request.begin(1, lane(), each.bytes.get(), each.size);
        what % 8 == 0 ? link_.send(each.request) : link_.recv(each.request);
        break;
      }
      case 2:  // bytes anywhere in the ring
        peer_bytes();
        break;
      case 3:
        in_->control.head.store(position());
        break;
      case 4:
        out_->control.tail.store(position());
        out_->control.eager_taken.store(input_.get<std::uint16_t>());
        break;
      case 5:
        out_->control.posted[lane()].store(input_.byte());
        in_->control.closed.store(what >> 7);
        state_.asleep.store(what >> 6 & 1);
        break;
      default:
        put_frame(what);
    }
  }

  void peer_bytes() {
    const std::uint64_t at = input_.get<std::uint16_t>();
    const std::string_view bytes = input_.bytes(input_.byte());
    in_->view().copy_in(at, reinterpret_cast<const std::byte*>(bytes.data()),
                        std::min<std::size_t>(bytes.size(), kRing));
  }
  /// Writes a frame as the peer's writer does, if there is room.
  void put_frame(std::uint8_t what) {
    Frame frame;
    frame.total = size_of();
    frame.piece = static_cast<std::uint32_t>(std::min<std::uint64_t>(frame.total, 512));
    frame.lane = static_cast<std::uint16_t>(lane());
    frame.eager = (what & 0x10) != 0;
    if (peer_.room(frame.piece) < static_cast<std::int64_t>(frame.piece)) return;
    const std::vector<std::byte> payload(frame.piece);
    peer_.put(frame, payload.data());
  }
  std::uint64_t position() {
    const std::uint64_t at = input_.get<std::uint16_t>();
    return at % 8 == 7 ? input_.get<std::uint64_t>() : at * kLine;
  }
  std::uint32_t lane() { return input_.below(4) == 3 ? input_.byte() : 0; }
  std::size_t size_of() {
    constexpr std::size_t kSizes[] = {0, 1, 48, 49, 256, 257, 1000, 5000};
    return kSizes[input_.byte() % 8];
  }

  fuzz::Input input_;
  std::unique_ptr<Ring> out_ = std::make_unique<Ring>(), in_ = std::make_unique<Ring>();
  RankState state_;
  std::vector<std::unique_ptr<fuzz::Posted>> posted_;
  Link link_;
  RingWriter peer_;
};

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Harness(fuzz::Input(data, size)).run();
  return 0;
}
