#include "hccl/api/call_group.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <utility>

#include "hccl/api/guard.h"
#include "hccl/api/overlaps.h"
#include "hccl/base/caught.h"
#include "hccl/base/thread.h"
#include "hccl/hccl_comm.h"

namespace hccl::api {
namespace {

// One call that runs later: a collective or, if there are transfers, a batch of sends and receives.
struct Job {
  CommunicatorPtr comm;
  aclrtStream stream = nullptr;
  CallWithBlocks call{Call()};
  std::vector<exec::Transfer> transfers;

  /// Runs the call on the caller's thread at its place in the communicator's order.
  Status run(const WorkQueue::Ticket& place) {
    return transfers.empty() ? comm->operations().run(call, place)
                             : comm->operations().exchange(transfers, place);
  }
};

// A call that makes a communicator; it runs at the end of the group.
struct Join {
  const char* function = "";
  std::function<Status()> run;
  Status result;
};

// A place in a communicator's order. The destructor gives up the place if no operation has run
// there.
class Place {
 public:
  explicit Place(CommunicatorPtr comm)
      : comm_(std::move(comm)), ticket_(comm_->operations().queue().reserve()) {}
  ~Place() { give_up(); }
  Place(const Place&) = delete;
  Place& operator=(const Place&) = delete;

  Status run(Job& job) {
    const auto ticket = std::exchange(ticket_, nullptr);
    try {
      return job.run(ticket);
    } catch (...) {  // an unused place would block all later calls
      comm_->operations().queue().cancel(ticket);
      throw;
    }
  }
  void give_up() {
    if (const auto ticket = std::exchange(ticket_, nullptr))
      comm_->operations().queue().cancel(ticket);
  }

 private:
  CommunicatorPtr comm_;
  WorkQueue::Ticket ticket_;
};

}  // namespace

// The calls between HcclGroupStart and HcclGroupEnd. The `comm` of a job is null once a stream or
// another thread has taken over the job.
struct CallGroup {
  int depth = 0;  // calls of HcclGroupStart whose HcclGroupEnd has not come
  std::vector<Job> jobs;
  std::vector<Join> joins;  // empty if there are jobs
  Status refused;
};

namespace {

// The pointer to the open group is a plain pointer, because a thread_local object with a destructor
// needs memory for its registration. If that memory is lacking, glibc ends the process.
constinit thread_local ThreadCalls on_thread;

bool point_to_point(const Job& job) { return !job.transfers.empty(); }

// Merges all sends and receives of each communicator, in their order, into one batch.
Result<std::vector<Job>> merged(const std::vector<Job>& jobs) {
  std::vector<Job> out;
  for (const Job& job : jobs) {
    const auto same = [&](const Job& each) { return each.comm == job.comm; };
    const auto at = std::find_if(out.begin(), out.end(), same);
    if (at == out.end()) {
      out.push_back(job);
    } else {
      at->transfers.insert(at->transfers.end(), job.transfers.begin(), job.transfers.end());
    }
  }
  for (const Job& job : out) {
    HCCL_RETURN_IF_ERROR(exec::pair_self(job.transfers, job.comm->rank()));
    HCCL_RETURN_IF_ERROR(check_overlaps(*job.comm, job.transfers));
  }
  return out;
}

// Tells the other ranks, which may wait for the group's calls, that these calls do not run.
void report_not_run(const std::vector<Job>& jobs, const Status& why) {
  const std::string text = "HcclGroupEnd: " + why.message();
  for (auto job = jobs.begin(); job != jobs.end(); ++job) {
    if (job->comm == nullptr || !job->comm->async_error().ok()) continue;
    if (point_to_point(*job)) {
      job->comm->operations().refused(job->transfers, text);
    } else if (std::none_of(jobs.begin(), job,
                            [&](const Job& each) { return each.comm == job->comm; })) {
      job->comm->operations().refused(text);  // once: ranks wait only in the first call
    }
  }
}

// The calls without a stream of one communicator, in order.
struct CommunicatorCalls {
  core::Communicator* comm = nullptr;
  std::vector<std::pair<Job*, std::unique_ptr<Place>>> jobs;
  Status result;

  void run() {
    result = guarded([this] {
      Status first;
      for (auto& [job, place] : jobs) {
        const Status status = place->run(*job);
        job->comm = nullptr;
        if (first.ok()) first = status;
      }
      return first;
    });
  }
};

// Queues the job in its stream. The job gets its place in the communicator's order now.
Status enqueue(Job job) {
  HCCL_ASSIGN_OR_RETURN(const auto stream, acl::find_stream(job.stream));
  auto place = std::make_shared<Place>(job.comm);
  auto waiting = std::make_shared<Job>(std::move(job));
  stream->submit([waiting, place] { return place->run(*waiting); }, [place] { place->give_up(); });
  return {};
}

// Gives all calls their places, in the order of the calls. Calls with a stream are queued in the
// stream. The calls without a stream run now, with one thread for each communicator, because the
// communicators may be ranks that wait for each other.
Status launch(std::vector<Job>& jobs) {
  std::vector<CommunicatorCalls> queues;
  for (Job& job : jobs) {
    if (job.stream != nullptr) {
      HCCL_RETURN_IF_ERROR(enqueue(job));
      job.comm = nullptr;
      continue;
    }
    const auto same = [&](const CommunicatorCalls& each) { return each.comm == job.comm.get(); };
    auto at = std::find_if(queues.begin(), queues.end(), same);
    if (at == queues.end()) {
      queues.emplace_back().comm = job.comm.get();
      at = queues.end() - 1;
    }
    at->jobs.emplace_back(&job, std::make_unique<Place>(job.comm));
  }
  if (queues.empty()) return {};
  {
    std::vector<Thread> threads;
    for (std::size_t i = 1; i < queues.size(); ++i) {
      threads.emplace_back("hccl-group", [queue = &queues[i]] { queue->run(); });
    }
    queues.front().run();
  }
  for (const CommunicatorCalls& queue : queues) HCCL_RETURN_IF_ERROR(queue.result);
  return {};
}

// The communicators may be ranks that wait for each other, so all joins run at once.
Status run_joins(std::vector<Join>& joins) {
  {
    std::vector<Thread> threads;
    threads.reserve(joins.size());
    for (Join& each : joins) {
      threads.emplace_back("hccl-join", [&each] { each.result = guarded(each.run); });
    }
  }
  for (const Join& each : joins) {
    if (!each.result.ok()) return each.result.with_context(each.function);
  }
  return {};
}

Status run_group(std::vector<Job>& jobs) {
  if (!jobs.empty() && point_to_point(jobs.front())) {
    auto batches = merged(jobs);
    HCCL_RETURN_IF_ERROR(batches.status());
    jobs = std::move(*batches);
  }
  return launch(jobs);
}

Status other_kind(const char* kind) {
  return Status(Code::kPara,
                std::string("a group holds calls of one kind, and this one has ") + kind);
}

Status collect(Job job) {
  CallGroup& open = *on_thread.open;
  if (!open.joins.empty()) return other_kind("calls that make communicators");
  if (job.stream != nullptr) {
    HCCL_RETURN_IF_ERROR(acl::find_stream(job.stream).status());
  }
  for (const Job& each : open.jobs) {
    if (point_to_point(each) != point_to_point(job)) {
      return other_kind(point_to_point(each) ? "sends and receives" : "collectives");
    }
    if (point_to_point(job) && each.comm == job.comm && each.stream != job.stream) {
      return Status(Code::kPara,
                    "stream differs from that of the group's other sends and receives on this "
                    "communicator");
    }
  }
  open.jobs.push_back(std::move(job));
  return {};
}

Status end_group() {
  if (on_thread.open == nullptr) {
    return Status(Code::kNotSupport, "no group is open: HcclGroupStart comes first");
  }
  if (--on_thread.open->depth > 0) return {};
  const std::unique_ptr<CallGroup> group(std::exchange(on_thread.open, nullptr));
  const Status ended = guarded([&] {
    if (!group->refused.ok()) return group->refused.with_context("nothing of the group was run");
    return group->joins.empty() ? run_group(group->jobs) : run_joins(group->joins);
  });
  if (!ended.ok()) report_not_run(group->jobs, ended);
  return ended;
}

}  // namespace

const ThreadCalls& thread_calls() { return on_thread; }

void leave_call_group_of_parent() noexcept { on_thread.open = nullptr; }

void refuse_call_group(const Status& why, const char* function) noexcept {
  if (on_thread.open == nullptr || !on_thread.open->refused.ok()) return;
  on_thread.open->refused = why;
  try {
    on_thread.open->refused = why.with_context(function);
  } catch (...) {  // NOLINT(bugprone-empty-catch): there is no memory for a longer text
  }
}

Status run_later(const CommunicatorPtr& comm, aclrtStream stream, CallWithBlocks call) {
  Job job{comm, stream, std::move(call), {}};
  return in_call_group() ? collect(std::move(job)) : enqueue(std::move(job));
}

Status run_later(const CommunicatorPtr& comm, aclrtStream stream,
                 std::span<const exec::Transfer> transfers) {
  if (transfers.empty()) return acl::find_stream(stream).status();
  Job job{comm, stream, CallWithBlocks(Call()), {transfers.begin(), transfers.end()}};
  return in_call_group() ? collect(std::move(job)) : enqueue(std::move(job));
}

Status join_later(const char* function, std::function<Status()> join) {
  if (!in_call_group()) return join();
  CallGroup& open = *on_thread.open;
  if (!open.jobs.empty()) return other_kind("operations");
  open.joins.push_back({function, std::move(join), {}});
  return {};
}

}  // namespace hccl::api

extern "C" {

HcclResult HcclGroupStart(void) {
  return hccl::api::guard("HcclGroupStart", [] {
    using hccl::api::on_thread;
    if (on_thread.open == nullptr) on_thread.open = new hccl::api::CallGroup;
    ++on_thread.open->depth;
    return hccl::Status();
  });
}

HcclResult HcclGroupEnd(void) { return hccl::api::guard("HcclGroupEnd", hccl::api::end_group); }

HcclResult HcclGroupStatusGet(bool* isGroupEnabled) {
  return hccl::api::guard("HcclGroupStatusGet", [&]() -> hccl::Status {
    HCCL_CHECK_PTR(isGroupEnabled);
    *isGroupEnabled = hccl::api::in_call_group();
    return {};
  });
}

HcclResult HcclSetCallTag(uint32_t tag) {
  hccl::api::on_thread.tag = tag == 0 ? 0 : tag | 0x80000000;
  return HCCL_SUCCESS;
}

}  // extern "C"
