// The coordinator's decisions, fed with frames of several members, ends of connections, and time.
// What comes out goes to connections that are open, and is small beside what came in.
#include "hccl/join/membership.h"

#include <set>

#include "tests/fuzz/fuzz.h"

namespace {

using namespace hccl;
using namespace hccl::join;
using wire::Kind;

class Harness {
 public:
  explicit Harness(fuzz::Input input)
      : input_(input), membership_("here", 100, std::chrono::seconds(1), std::chrono::seconds(1)) {}

  void run() {
    // Most inputs are about a world that is complete.
    const std::uint32_t ranks = input_.below(5);
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
      put(static_cast<int>(rank), hello(rank, ranks));
    }
    for (int steps = 0; !input_.empty() && steps < 300; ++steps) step();
    // The coordinator ends once all connections have ended and the time for joining is over.
    for (const int connection : std::set<int>(open_)) end(connection);
    now_ += std::chrono::seconds(10);
    deliver(membership_.tick(now_));
    PROMISE(open_.empty());
  }

 private:
  void step() {
    const int connection = static_cast<int>(input_.below(8));
    const std::uint8_t what = input_.byte();
    if (what < 16) return end(connection);
    if (what < 48) {
      now_ += std::chrono::milliseconds(10 * input_.byte());
      return deliver(membership_.tick(now_));
    }
    if (what < 80) return put(connection, std::string(input_.blob()));
    put(connection, frame(static_cast<Kind>(1 + what % 11)));
  }

  /// A frame as ranks make it, but for some of its numbers.
  std::string frame(Kind kind) {
    ByteWriter out;
    out.put(kind);
    switch (kind) {
      case Kind::kHello:
        return hello(input_.byte(),
                     input_.byte() % 8 == 0 ? input_.get<std::uint32_t>() : input_.below(8));
      case Kind::kExchange:
        out.put(scope()).put(std::uint32_t{input_.byte()}).put(std::uint32_t{input_.byte()});
        out.put(std::uint64_t{input_.byte()} << input_.below(64))
            .put_text(input_.bytes(input_.byte()))
            .put_text("\37")  // ranks 0 to 4
            .put(static_cast<std::uint8_t>(input_.below(2)));
        break;
      case Kind::kFailure:
        out.put(scope());
        wire::put(out, Status(static_cast<Code>(input_.byte()), std::string(input_.bytes(8)),
                              input_.byte() - 1));
        break;
      case Kind::kStall: {
        out.put(scope()).put(std::uint64_t{input_.byte()}).put_text(input_.bytes(input_.below(4)));
        const std::uint32_t number = input_.below(4);
        out.put(number);
        for (std::uint32_t i = 0; i < number; ++i) out.put(input_.below(6));
        break;
      }
      case Kind::kRefusal:
        out.put(scope()).put(std::uint64_t{input_.byte()}).put_text(input_.bytes(4));
        break;
      case Kind::kEnd:
        out.put_text(input_.bytes(4));
        break;
      case Kind::kSummons:
        out.put(scope());
        break;
      default:
        break;
    }
    return out.take();
  }

  static std::string hello(std::uint32_t rank, std::uint32_t size) {
    ByteWriter out;
    out.put(Kind::kHello).put(wire::kVersion).put(size).put_text("transport=auto");
    wire::put(out, wire::Member{rank, 100 + rank, "\3", "here", "127.0.0.1"});
    return out.take();
  }
  Uuid scope() {
    Uuid id{};
    id[0] = static_cast<std::uint8_t>(input_.below(4));
    return id;
  }

  // As the coordinator's sockets do.
  void put(int connection, const std::string& bytes) {
    if (closed_.count(connection) != 0) return;
    open_.insert(connection);
    if (bytes.empty() || bytes.size() > membership_.cap(connection)) return end(connection);
    deliver(membership_.frame(connection, bytes, now_));
  }
  void end(int connection) {
    if (open_.erase(connection) == 0) return;
    closed_.insert(connection);  // numbers are not used again
    deliver(membership_.closed(connection));
  }
  void deliver(const Membership::Outs& outs) {
    PROMISE(outs.size() <= 64);
    for (const auto& out : outs) {
      PROMISE(out.connection >= 0 && out.connection < 8);
      if (open_.count(out.connection) == 0) continue;  // ended by an earlier one of these
      const std::string_view frame = out.frame;
      PROMISE(frame.size() <= (1 << 20) && (out.close || !frame.empty()));
      if (!frame.empty()) PROMISE(for_ranks(static_cast<Kind>(frame[0])));
      if (out.close) end(out.connection);
    }
  }

  static bool for_ranks(Kind kind) {
    switch (kind) {
      case Kind::kTable:
      case Kind::kRefused:
      case Kind::kExchange:
      case Kind::kFailure:
      case Kind::kLeave:
      case Kind::kBeat:
      case Kind::kSummons:
      case Kind::kAwaited:
        return true;
      default:
        return false;
    }
  }

  fuzz::Input input_;
  Membership membership_;
  Membership::Time now_{};
  std::set<int> open_, closed_;
};

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Harness(fuzz::Input(data, size)).run();
  return 0;
}
