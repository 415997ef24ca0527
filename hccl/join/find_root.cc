#include "hccl/join/find_root.h"

#include <algorithm>
#include <chrono>

#include "hccl/base/socket.h"

namespace hccl::join {
namespace {

// Proves this rank to the program that listens there, and demands that program's proof.
Result<Line> prove_to(const RootInfo& info, Fd fd, const std::shared_ptr<const TlsContext>& context,
                      Deadline deadline) {
  Line line(std::move(fd), Line::Side::kClient, context, info);
  for (;;) {
    HCCL_RETURN_IF_ERROR(line.prove());
    if (line.proved()) return line;
    HCCL_RETURN_IF_ERROR(wait_fd(line.fd(), line.wants(), deadline));
  }
}

constexpr std::chrono::seconds kProofTime{5};

struct Seeker {
  const RootInfo& info;
  const std::string& from;
  std::shared_ptr<const TlsContext> context;
  const Logger& log;

  // kTcpConnect: another program listens there. kPara: the address is invalid.
  Result<Line> try_port(std::uint16_t port, Deadline turn, Deadline deadline) const {
    HCCL_ASSIGN_OR_RETURN(Fd fd, connect_tcp(info.address, port, from, turn));
    // A program that listens at another port may be silent, and must not hold this rank up.
    const Deadline proof = info.ports == 1 ? Deadline::after(kProofTime) : turn;
    return prove_to(info, std::move(fd), context, deadline.sooner(proof));
  }

  // Tries the ports in turn, because another program may listen on some of them. Tries again after
  // a closed connection.
  Result<Line> find(Deadline deadline) const {
    auto pause = std::chrono::milliseconds(10);
    auto answer = std::chrono::milliseconds(25);
    std::string stranger;
    bool warned = false;
    const Deadline soon = Deadline::after(std::chrono::seconds(1));
    for (int i = 0;; i = (i + 1) % info.ports) {
      // Each round waits twice as long, because the root may be far away or busy.
      if (i == 0) answer = std::min(2 * answer, std::chrono::milliseconds(3200));
      const auto port = static_cast<std::uint16_t>(info.port + i);
      const Deadline turn = info.ports == 1 ? deadline : deadline.sooner(Deadline::after(answer));
      auto line = try_port(port, turn, deadline);
      const Status& last = line.status();
      // A wrong proof at the only port: the coordinator will not appear there later.
      const bool wrong = info.ports == 1 && last.code() == Code::kTcpConnect;
      if (line.ok() || last.code() == Code::kPara) return line;
      if (wrong) return last.with_context("joining at " + endpoint_text(info.address, port));
      // An error of this process, which a second try would meet again.
      if (last.code() == Code::kSyscall) return last.with_context("joining");
      // The id comes from the secret, so a root of another secret is one of another job.
      if (last.code() == Code::kUnavail) {
        stranger = "; at " + endpoint_text(info.address, port) +
                   " a root of another secret or job answers: compare the files of "
                   "HCCL_JOB_SECRET_FILE on the hosts";
      }
      if (!warned && !stranger.empty() && soon.expired()) {  // not of another job's root nearby
        warned = true;
        log->warn("joining: the root has not been found yet{}", stranger);
      }
      if (deadline.expired()) {
        return Status(Code::kTimeout, "EI0006: the root at " +
                                          endpoint_text(info.address, info.port) +
                                          " does not answer: " + last.message() + stranger);
      }
      if (last.code() != Code::kTimeout) {
        pause = std::min(2 * pause, std::chrono::milliseconds(640));
        nap(pause, deadline);
      }
    }
  }
};

}  // namespace

Result<Line> find_root(const RootInfo& info, const std::string& from, Deadline deadline,
                       const Logger& log) {
  HCCL_ASSIGN_OR_RETURN(auto context, TlsContext::create());
  return Seeker{info, from, std::move(context), log}.find(deadline);
}

}  // namespace hccl::join
