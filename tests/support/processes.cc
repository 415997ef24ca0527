#include "tests/support/processes.h"

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <new>
#include <thread>

#include "hccl/base/random.h"
#include "tests/support/siblings.h"

namespace hccl::testing {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;

std::int64_t now_ns() {
  return std::chrono::duration_cast<nanoseconds>(Deadline::Clock::now().time_since_epoch()).count();
}

void Outcome::set(const Status& status) {
  at_ns = now_ns();
  code = status.code();
  culprit = status.culprit();
  std::snprintf(text.data(), text.size(), "%s", status.message().c_str());
  known = true;
}

bool eventually(const std::function<bool()>& condition, nanoseconds at_most) {
  return Lateness().watch(condition, at_most);
}

bool Lateness::watch(const std::function<bool()>& condition, nanoseconds at_most) {
  const Deadline deadline = Deadline::after(at_most);
  constexpr milliseconds kNap{2};
  for (;;) {
    if (condition()) return true;
    if (deadline.expired()) return false;
    const std::int64_t before = now_ns();
    std::this_thread::sleep_for(kNap);
    worst_ = std::max(worst_, nanoseconds(now_ns() - before) - kNap);
  }
}

Processes::Processes() {
  void* page =
      ::mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  board_ = new (page) Board;
}

Processes::~Processes() {
  for (std::size_t i = 0; i < children_.size(); ++i) {
    if (children_[i] == 0) continue;
    kill(static_cast<int>(i));
    static_cast<void>(wait(static_cast<int>(i)));
  }
  ::munmap(board_, sizeof(Board));
}

int Processes::start(const std::function<int()>& body) {
  std::fflush(nullptr);
  const pid_t pid = ::fork();
  if (pid == 0) {
    const int result = body();
    std::fflush(nullptr);
    ::_exit(result);
  }
  children_.push_back(pid);
  return static_cast<int>(children_.size()) - 1;
}

void Processes::kill(int process, int signal) {
  const pid_t pid = children_[static_cast<std::size_t>(process)];
  if (pid > 0) ::kill(pid, signal);
}

int Processes::wait(int process, nanoseconds at_most) {
  pid_t& pid = children_[static_cast<std::size_t>(process)];
  int status = -1;
  if (pid <= 0) return status;
  if (!eventually([&] { return ::waitpid(pid, &status, WNOHANG) == pid; }, at_most)) return -1;
  pid = 0;
  return status;
}

Status Processes::join(Member& member, int size, int rank, const Config& config) {
  const Logger log = make_logger(config.log_level, "rank " + std::to_string(rank));
  member.thread = std::make_shared<join::Control>();
  if (rank == 0) {
    join::RootInfo info;
    HCCL_RETURN_IF_ERROR(random_bytes(info.secret.data(), info.secret.size()));
    HCCL_RETURN_IF_ERROR(random_bytes(info.id.data(), info.id.size()));
    info.address = "127.0.0.1";
    HCCL_ASSIGN_OR_RETURN(member.node, join::Node::root(member.thread, info, config, log));
    info.encode(board_->info);
    board_->open = true;
  }
  if (!eventually([this] { return board_->open.load(); })) {
    return Status(Code::kTimeout, "no root info");
  }
  HCCL_ASSIGN_OR_RETURN(const join::RootInfo info, join::RootInfo::decode(board_->info));
  if (rank != 0) member.node = std::make_shared<join::Node>(member.thread, info);
  HCCL_ASSIGN_OR_RETURN(member.control, join::World::join(member.node, size, rank, config, log));
  return {};
}

Status Processes::enter(Member& member, int size, int rank, const Config& config) {
  HCCL_RETURN_IF_ERROR(join(member, size, rank, config));
  const Logger log = make_logger(config.log_level, "rank " + std::to_string(rank));
  HCCL_ASSIGN_OR_RETURN(
      member.world, core::Communicator::world(member.control, "world", config, log, siblings()));
  return {};
}

void Processes::leave(Member& member) {
  if (member.world) member.world->leave();
  member.world.reset();
  member.control.reset();
  member.node.reset();
  member.thread.reset();
}

}  // namespace hccl::testing
