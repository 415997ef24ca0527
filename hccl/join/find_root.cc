#include "hccl/join/find_root.h"

#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <optional>
#include <vector>

#include "hccl/base/error_text.h"
#include "hccl/base/socket.h"

namespace hccl::join {
namespace {

using std::chrono::milliseconds;

constexpr std::chrono::seconds kProofTime{5};
// The time between the first attempts at two ports. Mostly the root is at the first port.
constexpr milliseconds kHeadStart{20};

// The search at one port. It begins again after a failure.
struct Attempt {
  std::uint16_t port;
  Deadline begin;
  milliseconds pause{2};
  Fd fd = {};                               // the socket while it connects
  std::optional<Line> line = std::nullopt;  // the line on the connected socket
  Deadline proof = Deadline::never();

  bool idle() const { return !fd.valid() && !line; }
};

// Tries all ports at the same time, because another program may listen at one of them and never
// answer.
struct Seeker {
  const RootInfo& info;
  const std::string& from;
  std::shared_ptr<const TlsContext> context;
  const Logger& log;
  std::vector<Attempt> attempts = {};
  Status last = Status(Code::kTimeout, "no answer");
  std::string stranger = {};
  Deadline soon = Deadline::after(std::chrono::seconds(1));
  bool warned = false;

  // Continues an attempt without blocking. True once both ends have proved themselves.
  Result<bool> advance(Attempt& each) const {
    if (each.idle()) {
      if (!each.begin.expired()) return false;
      HCCL_ASSIGN_OR_RETURN(each.fd, start_connect_tcp(info.address, each.port, from));
      each.proof = info.ports > 1 ? Deadline::after(kProofTime) : Deadline::never();
    }
    if (!each.line) {
      if (!wait_fd(each.fd.get(), POLLOUT, Deadline::after({})).ok()) {
        if (each.proof.expired()) return Status(Code::kTimeout, "no answer");
        return false;
      }
      if (const int error = connect_error(each.fd.get()); error != 0) {
        return Status(Code::kTcpConnect, "connect to " + endpoint_text(info.address, each.port) +
                                             ": " + error_text(error));
      }
      each.line.emplace(std::move(each.fd), Line::Side::kClient, context, info);
      each.proof = Deadline::after(kProofTime);
    }
    HCCL_RETURN_IF_ERROR(each.line->prove());
    if (!each.line->proved() && each.proof.expired()) return Status(Code::kTimeout, "no answer");
    return each.line->proved();
  }

  // Ends an attempt after a failure. Returns the failure if it must end the search. Else sets the
  // time of the next attempt at this port, and returns success.
  Status judge(Attempt& each, const Status& failure) {
    const std::string where = endpoint_text(info.address, each.port);
    last = failure;
    if (last.code() == Code::kPara) return last;
    // A wrong proof at the only port: the root will not appear there later.
    if (info.ports == 1 && each.line && last.code() == Code::kTcpConnect) {
      return last.with_context("joining at " + where);
    }
    each.fd.reset();
    each.line.reset();
    each.begin = Deadline::after(each.pause);
    each.pause = std::min(2 * each.pause, milliseconds(info.ports == 1 ? 200 : 640));
    // A system error of this process ends the search, because a second attempt would fail, too. But
    // not while other attempts run: they may hold the descriptors that are missing.
    if (last.code() == Code::kSyscall &&
        std::all_of(attempts.begin(), attempts.end(), [](const Attempt& a) { return a.idle(); })) {
      return last.with_context("joining");
    }
    // The id comes from the secret, so a root with another secret has the id of another job.
    if (last.code() == Code::kUnavail) {
      stranger = "; at " + where +
                 " a root of another secret or job answers: compare the files of "
                 "HCCL_JOB_SECRET_FILE, the rank tables and HCCL_JOB_ID on the hosts";
    }
    if (!warned && !stranger.empty() && soon.expired()) {  // the right root would have answered
      warned = true;
      log->warn("joining: the root has not been found yet{}", stranger);
    }
    return {};
  }

  Status wait(Deadline deadline) const {
    std::vector<pollfd> polled;
    for (const Attempt& each : attempts) {
      deadline = deadline.sooner(each.idle() ? each.begin : each.proof);
      if (each.line) polled.push_back({each.line->fd(), each.line->wants(), 0});
      if (each.fd.valid()) polled.push_back({each.fd.get(), POLLOUT, 0});
    }
    if (::poll(polled.data(), polled.size(), deadline.poll_ms()) >= 0 || errno == EINTR) return {};
    return syscall_failure("joining: poll");
  }

  Result<Line> find(Deadline deadline) {
    for (int i = 0; i < info.ports; ++i) {
      attempts.push_back(
          {static_cast<std::uint16_t>(info.port + i), Deadline::after(i * kHeadStart)});
    }
    for (;;) {
      for (Attempt& each : attempts) {
        const auto found = advance(each);
        if (!found.ok()) HCCL_RETURN_IF_ERROR(judge(each, found.status()));
        if (found.ok() && *found) return std::move(*each.line);
      }
      if (deadline.expired()) {
        return Status(Code::kTimeout, "EI0006: the root at " +
                                          endpoint_text(info.address, info.port) +
                                          " does not answer: " + last.message() + stranger);
      }
      HCCL_RETURN_IF_ERROR(wait(deadline));
    }
  }
};

}  // namespace

Result<Line> find_root(const RootInfo& info, const std::string& from, Deadline deadline,
                       const Logger& log) {
  HCCL_ASSIGN_OR_RETURN(auto context, make_tls_context());
  return Seeker{info, from, std::move(context), log}.find(deadline);
}

}  // namespace hccl::join
