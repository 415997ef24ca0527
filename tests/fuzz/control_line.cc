// A rank's end of the control line, on loopback: this is the coordinator, which proves that it
// holds the secret and then sends what it likes. The rank says why it cannot join, or its line
// ends; exchanges that wait on it end, too.
#include "hccl/join/control_line.h"

#include <poll.h>
#include <sys/socket.h>

#include <thread>

#include "hccl/base/tls.h"
#include "hccl/join/line.h"
#include "tests/fuzz/fuzz.h"
#include "tests/support/config.h"

namespace {

using namespace hccl;
using namespace hccl::join;
using wire::Kind;

constexpr std::uint32_t kRanks = 3;

struct Deaf final : FailureListener {
  void on_failure(const Uuid&, const Status& why) override { PROMISE(!why.ok()); }
  void on_summons(const Uuid&) override {}
};

std::string table() {
  ByteWriter out;
  out.put(Kind::kTable).put(kRanks).put(std::uint32_t{1});
  for (std::uint32_t rank = 0; rank < kRanks; ++rank) {
    wire::put(out, wire::Member{rank, 100 + rank, "\3", "here", "127.0.0.1"});
  }
  return out.take();
}

std::string frame(fuzz::Input& input) {
  const std::uint8_t what = input.byte();
  if (what < 128) return std::string(input.blob());
  ByteWriter out;
  const auto kind = static_cast<Kind>(3 + what % 8);
  out.put(kind);
  if (kind == Kind::kLeave) return out.put(std::uint32_t{input.byte()}).take();
  out.put(Uuid{static_cast<std::uint8_t>(input.below(3))});
  if (kind == Kind::kFailure) {
    wire::put(out,
              Status(static_cast<Code>(input.byte()), std::string(input.bytes(8)), input.byte()));
  } else if (kind == Kind::kExchange) {
    const std::uint32_t absent = input.below(3);
    out.put(absent);
    const std::uint32_t number = absent == 0 ? input.byte() : absent;
    if (absent == 0) out.put(number);
    for (std::uint32_t i = 0; i < number && !input.empty(); ++i) {
      absent == 0 ? out.put_text(input.bytes(input.below(8)))
                  : out.put(std::uint32_t{input.byte()});
    }
  }
  return out.take();
}

/// The coordinator's end, for one rank.
void serve(const Listener& listener, const RootInfo& info, fuzz::Input input) {
  const Deadline deadline = Deadline::after(std::chrono::seconds(20));
  PROMISE(wait_fd(listener.fd.get(), POLLIN, deadline).ok());
  auto fd = accept_one(listener.fd.get());
  PROMISE(fd.ok() && fd->valid());
  Line line(std::move(*fd), Line::Side::kServer, TlsContext::create().value(), info);
  while (!line.proved()) {
    PROMISE(wait_fd(line.fd(), line.wants(), deadline).ok());
    PROMISE(line.prove().ok());
  }
  for (;;) {  // the hello
    const auto hello = line.next(wire::kHelloCap);
    PROMISE(hello.ok());
    if (*hello) break;
    const auto got = line.fill();
    PROMISE(got.ok() && (*got > 0 || wait_fd(line.fd(), POLLIN, deadline).ok()));
  }
  if (input.byte() % 4 != 0) line.put(table());
  while (!input.empty()) line.put(frame(input));
  while (line.unsent() && line.flush().ok() && wait_fd(line.fd(), POLLOUT, deadline).ok()) {
  }
  ::shutdown(line.fd(), SHUT_WR);
  // Closing with something unread would take back what was sent.
  char rest[4096];
  while (wait_fd(line.fd(), POLLIN, deadline).ok() && ::recv(line.fd(), rest, sizeof rest, 0) > 0) {
  }
}

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const Listener listener = listen_tcp("127.0.0.1", 0).value();
  static const Logger log = make_logger("off", "fuzz");
  RootInfo info;
  info.secret = {1, 2, 3};
  info.address = "127.0.0.1";
  info.port = listener.port;
  const std::jthread coordinator([&] { serve(listener, info, fuzz::Input(data, size)); });
  const auto line = ControlLine::join(info, kRanks, 0,
                                      testing::quiet_config("tcp", std::chrono::seconds(20)), log);
  if (!line.ok()) return 0;
  PROMISE((*line)->size() == kRanks);
  Deaf listener_of_failures;
  (*line)->add(&listener_of_failures);
  const AbortFlag never;
  const auto parts = (*line)->exchange(Uuid{1}, kRanks, 0, "mine",
                                       Deadline::after(std::chrono::seconds(20)), never);
  PROMISE(!parts.ok() || parts->size() == kRanks);
  (*line)->remove(&listener_of_failures);
  return 0;
}
