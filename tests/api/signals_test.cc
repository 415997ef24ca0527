// Each rank, a process, gets ten thousand signals a second, from before it joins until it has left.
// The handler lacks SA_RESTART, so signals interrupt system calls. Operations still succeed, and no
// handler runs on a thread of the library. HCCL_TRANSPORT chooses the transport.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csetjmp>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "hccl/acl/acl.h"
#include "hccl/hccl.h"
#include "hccl/hccl_comm.h"
#include "hccl/hccl_framework.h"
#include "tests/support/api_world.h"

namespace hccl::testing::signals_test {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::uint32_t kSize = 3;
constexpr std::chrono::microseconds kBetween{100};
constexpr std::chrono::milliseconds kLong{1500};  // collectives run for this long
constexpr std::uint64_t kCount = 30'000;

std::atomic<std::uint64_t> caught = 0;
std::atomic<bool> on_library = false;  // a signal was handled on a thread of the library

void handle(int) {
  caught.fetch_add(1, std::memory_order_relaxed);
  char name[16] = "";
  ::prctl(PR_GET_NAME, name);
  if (std::strncmp(name, "hccl-", 5) == 0) on_library = true;
}

/// The memory that the ranks share with the test.
struct Board {
  std::atomic<bool> open{false};
  HcclRootInfo info{};
  struct Rank {
    std::uint64_t signals = 0, operations = 0;
    char why[512] = "";
  } ranks[kSize];
};

#define DO(call) \
  if ((call) != HCCL_SUCCESS) return std::string(#call ": ") + HcclGetLastErrorText()

/// Sends signals to the process, and to each of its threads in turn, including the library's.
class Storm {
 public:
  Storm() {
    struct sigaction action{};
    action.sa_handler = &handle;
    ::sigaction(SIGUSR1, &action, nullptr);
    thread_ = std::jthread([](const std::stop_token& over) {
      while (!over.stop_requested()) {
        for (const auto& each : std::filesystem::directory_iterator("/proc/self/task")) {
          const pid_t thread = std::stoi(each.path().filename().string());
          if (thread == ::gettid()) continue;
          ::syscall(SYS_tgkill, ::getpid(), thread, SIGUSR1);  // the thread may have ended
          ::kill(::getpid(), SIGUSR1);
          std::this_thread::sleep_for(kBetween);
        }
      }
    });
  }

 private:
  std::jthread thread_;
};

/// Runs an allreduce in the stream and a message around the ring; returns "" or the error.
std::string operate(HcclComm comm, std::uint32_t rank, std::uint64_t seed, aclrtStream stream) {
  const std::uint64_t count = 1 + seed * 7919 % kCount;
  const auto base = static_cast<std::int32_t>(seed % 1000);
  std::vector<std::int32_t> sum(count), sent(count), got(count);
  for (std::uint64_t i = 0; i < count; ++i) {
    sum[i] = base + static_cast<std::int32_t>(rank * i);
    sent[i] = static_cast<std::int32_t>(rank + i);
  }
  DO(HcclAllReduce(sum.data(), sum.data(), count, HCCL_DATA_TYPE_INT32, HCCL_REDUCE_SUM, comm,
                   stream));
  HcclRequest requests[2];
  const std::uint32_t next = (rank + 1) % kSize, last = (rank + kSize - 1) % kSize;
  DO(HcclIsend(sent.data(), 4 * count, next, 1, comm, nullptr, nullptr, &requests[0]));
  DO(HcclIrecv(got.data(), 4 * count, last, 1, comm, nullptr, nullptr, &requests[1]));
  for (const HcclRequest request : requests) {
    DO(HcclRequestWait(request, 60'000, nullptr));
    DO(HcclRequestFree(request));
  }
  if (aclrtSynchronizeStreamWithTimeout(stream, 60'000) != ACL_SUCCESS) return "the stream failed";
  for (std::uint64_t i = 0; i < count; ++i) {
    const auto of_ranks = static_cast<std::int32_t>(i * (kSize * (kSize - 1) / 2));
    if (sum[i] != static_cast<std::int32_t>(kSize) * base + of_ranks) return "a wrong sum";
    if (got[i] != static_cast<std::int32_t>(last + i)) return "a wrong message";
  }
  return {};
}

std::string run_rank(Board& board, std::uint32_t rank) {
  const Storm storm;
  if (rank == 0) {
    DO(HcclGetRootInfo(&board.info));
    board.open = true;
  }
  while (!board.open) std::this_thread::yield();
  HcclComm world = nullptr, half = nullptr;
  aclrtStream stream = nullptr;
  if (aclrtCreateStream(&stream) != ACL_SUCCESS) return "there is no stream";
  DO(HcclCommInitRootInfo(kSize, &board.info, rank, &world));
  std::uint32_t ids[kSize] = {0, 1, 2};
  HcclCommConfig config;
  HcclCommConfigInit(&config);
  DO(HcclCreateSubCommConfig(&world, kSize, ids, 1, rank, &config, &half));
  const auto begin = Clock::now();
  for (std::int32_t more = 1; more != 0; ++board.ranks[rank].operations) {
    for (const HcclComm comm : {world, half}) {
      const std::string wrong = operate(comm, rank, board.ranks[rank].operations, stream);
      if (!wrong.empty()) return wrong;
    }
    more = Clock::now() - begin < kLong ? 1 : 0;
    DO(HcclAllReduce(&more, &more, 1, HCCL_DATA_TYPE_INT32, HCCL_REDUCE_MAX, world, nullptr));
  }
  DO(HcclCommDestroy(half));
  DO(HcclCommDestroy(world));
  if (aclrtDestroyStream(stream) != ACL_SUCCESS) return "the stream is not destroyed";
  return on_library ? "a signal was handled on a thread of the library" : "";
}

TEST(Signals, AStormOfThemChangesNothing) {
  void* const page =
      ::mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  auto* const board = new (page) Board;
  pid_t ranks[kSize];
  for (std::uint32_t rank = 0; rank < kSize; ++rank) {
    ranks[rank] = ::fork();
    if (ranks[rank] != 0) continue;
    const std::string why = run_rank(*board, rank);
    board->ranks[rank].signals = caught;
    std::snprintf(board->ranks[rank].why, sizeof board->ranks[rank].why, "%s", why.c_str());
    ::_exit(why.empty() ? 0 : 1);
  }
  for (std::uint32_t rank = 0; rank < kSize; ++rank) {
    int status = -1;
    EXPECT_EQ(::waitpid(ranks[rank], &status, 0), ranks[rank]);
    const Board::Rank& its = board->ranks[rank];
    EXPECT_EQ(status, 0) << "rank " << rank << ": " << its.why;
    std::printf("rank %u: %lu operations, %lu signals\n", rank, its.operations, its.signals);
    EXPECT_GT(its.signals, 1000U);
  }
}

// ---- a handler of the program that calls, and one that leaves the call ----

/// Two ranks that are processes: rank 0's handler acts while rank 0 waits, then rank 1 comes.
struct Pair {
  std::atomic<bool> open{false}, acted{false};
  HcclRootInfo info{};
}* pair = nullptr;
HcclComm handler_comm = nullptr;
HcclResult in_handler = HCCL_SUCCESS;
sigjmp_buf out_of_call;

HcclResult sum_of_two(HcclComm comm, std::int32_t* sum) {
  *sum = 1;
  return HcclAllReduce(sum, sum, 1, HCCL_DATA_TYPE_INT32, HCCL_REDUCE_SUM, comm, nullptr);
}

void call_in_handler(int) {
  std::int32_t sum = 0;
  in_handler = sum_of_two(handler_comm, &sum);
  pair->acted = true;
}

void leave_in_handler(int) { ::siglongjmp(out_of_call, 1); }

std::string join_two(std::uint32_t rank) {
  if (rank == 0) {
    DO(HcclGetRootInfo(&pair->info));
    pair->open = true;
  }
  while (!pair->open) std::this_thread::yield();
  DO(HcclCommInitRootInfo(2, &pair->info, rank, &handler_comm));
  return {};
}

/// Sends SIGALRM while the calling thread waits.
void signal_soon(void (*handler)(int)) {
  ::signal(SIGALRM, handler);
  const itimerval in_a_moment{{0, 0}, {0, 300'000}};
  ::setitimer(ITIMER_REAL, &in_a_moment, nullptr);
}

std::string call_while_it_waits(std::uint32_t rank) {
  std::string wrong = join_two(rank);
  if (!wrong.empty()) return wrong;
  rank == 0 ? signal_soon(&call_in_handler) : void();
  while (rank == 1 && !pair->acted) std::this_thread::yield();
  for (int i = 0; i < 2; ++i) {  // the call that was interrupted, and the next
    std::int32_t sum = 0;
    DO(sum_of_two(handler_comm, &sum));
    if (sum != 2) return "a wrong sum";
  }
  if (rank == 0 && in_handler != HCCL_E_AGAIN) return "the handler's call was not refused";
  DO(HcclCommDestroy(handler_comm));
  return {};
}

/// The thread that left its call is refused at once. Another thread's call ends soon after the
/// communicator has been aborted, and rank 1's calls fail.
std::string leave_while_it_waits(std::uint32_t rank) {
  std::string wrong = join_two(rank);
  if (!wrong.empty()) return wrong;
  std::int32_t sum = 0;
  if (rank == 1) {
    while (!pair->acted) std::this_thread::yield();
    std::int32_t value = 0;
    const HcclResult first = sum_of_two(handler_comm, &value);
    const HcclResult second = sum_of_two(handler_comm, &value);
    return first != HCCL_SUCCESS || second != HCCL_SUCCESS ? "" : "rank 1 heard of nothing";
  }
  if (sigsetjmp(out_of_call, 1) == 0) {
    signal_soon(&leave_in_handler);
    sum_of_two(handler_comm, &sum);
    return "the call was not left";
  }
  if (sum_of_two(handler_comm, &sum) != HCCL_E_AGAIN) return "the next call was not refused";
  const std::string text = HcclGetLastErrorText();
  if (text.find("longjmp") == std::string::npos) return text;
  HcclResult other = HCCL_SUCCESS;
  std::thread thread([&other] {
    std::int32_t value = 0;
    other = sum_of_two(handler_comm, &value);
  });
  DO(HcclCommAbort(handler_comm, "left by longjmp"));
  pair->acted = true;
  thread.join();
  return other != HCCL_SUCCESS ? "" : "the other thread's call succeeded";
}

HcclResult submitted(void* ran) {
  static std::int32_t sum = 0;  // outlives a call that is left
  ++*static_cast<std::atomic<int>*>(ran);
  return sum_of_two(handler_comm, &sum);
}

/// The same with submitted calls. Two more are queued behind the call that was left: another thread
/// waits for one of them, no thread for the other. Both fail soon after the communicator has ended,
/// and never run.
std::string leave_a_submitted_call(std::uint32_t rank, HcclCall call) {
  std::string wrong = join_two(rank);
  if (!wrong.empty()) return wrong;
  if (rank == 1) {
    while (!pair->acted) std::this_thread::yield();
    return {};
  }
  static std::atomic<int> first = 0, others = 0, told = 0;
  HcclRequest request = nullptr;
  if (sigsetjmp(out_of_call, 1) == 0) {
    signal_soon(&leave_in_handler);
    HcclSubmit(call, handler_comm, true, nullptr, &first, &request);
    return "the call was not left";
  }
  const auto tell = [](void*, HcclResult result) {
    told += result != HCCL_SUCCESS ? 1 : 100;
    told.notify_all();
  };
  DO(HcclSubmit(call, handler_comm, false, tell, &others, &request));
  DO(HcclSubmit(call, handler_comm, false, tell, &others, nullptr));
  HcclResult other = HCCL_SUCCESS;
  std::thread thread([&] { other = HcclRequestWait(request, 0, nullptr); });
  DO(HcclCommAbort(handler_comm, "left by longjmp"));
  thread.join();
  for (int now = told; now < 2; now = told) told.wait(now);
  pair->acted = true;
  if (other == HCCL_SUCCESS || told != 2) return "a submitted call did not fail";
  return first == 1 && others == 0 ? "" : "a wrong call ran";
}

std::string leave_its_operation(std::uint32_t rank) {
  return leave_a_submitted_call(rank, &submitted);
}

std::string leave_its_own_code(std::uint32_t rank) {
  return leave_a_submitted_call(rank, [](void* ran) {
    ++*static_cast<std::atomic<int>*>(ran);
    for (;;) ::pause();
    return HCCL_SUCCESS;
  });
}

void run_two(std::string (*program)(std::uint32_t)) {
  void* const page =
      ::mmap(nullptr, sizeof(Pair), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  pair = new (page) Pair;
  pid_t ranks[2];
  for (std::uint32_t rank = 0; rank < 2; ++rank) {
    ranks[rank] = ::fork();
    if (ranks[rank] != 0) continue;
    const std::string why = program(rank);
    if (!why.empty()) std::fprintf(stderr, "rank %u: %s\n", rank, why.c_str());
    ::_exit(why.empty() ? 0 : 1);
  }
  for (const pid_t rank : ranks) {
    int status = -1;
    EXPECT_EQ(::waitpid(rank, &status, 0), rank);
    EXPECT_EQ(status, 0);
  }
}

TEST(Signals, ACallFromAHandlerIsRefused) { run_two(&call_while_it_waits); }
TEST(Signals, ACallThatWasLeftByLongjmpRefusesTheNext) { run_two(&leave_while_it_waits); }
TEST(Signals, ASubmittedCallThatWasLeftByLongjmpEndsTheNext) { run_two(&leave_its_operation); }
TEST(Signals, ASubmittedCallThatWasLeftInItsOwnCodeEndsTheNext) { run_two(&leave_its_own_code); }

/// The signal mask of a thread that a callback starts.
struct Seen {
  std::atomic<bool> ready{false};
  std::thread::id where;
  std::string name = std::string(16, 0);
  sigset_t mask{};
  static void look(void* seen) {
    auto& self = *static_cast<Seen*>(seen);
    self.where = std::this_thread::get_id();
    ::prctl(PR_GET_NAME, self.name.data());
    std::thread([&] { ::pthread_sigmask(SIG_BLOCK, nullptr, &self.mask); }).join();
    self.ready = true;
    self.ready.notify_all();
  }
  static void look_too(void* seen, HcclResult) { look(seen); }
  void expect_mask_of_program(const char* thread) {
    ready.wait(false);
    EXPECT_STREQ(name.c_str(), thread);
    for (const int each : {SIGUSR1, SIGINT, SIGTERM, SIGCHLD, SIGALRM}) {
      EXPECT_EQ(::sigismember(&mask, each), 0) << each;
    }
    EXPECT_EQ(::sigismember(&mask, SIGUSR2), 1);
  }
};

TEST(Signals, AThreadThatACallbackStartsHasTheMaskOfTheProgram) {
  sigset_t one, before;
  ::sigemptyset(&one);
  ::sigaddset(&one, SIGUSR2);
  ::pthread_sigmask(SIG_BLOCK, &one, &before);
  {
    aclrtStream stream = nullptr;
    ASSERT_EQ(aclrtCreateStream(&stream), ACL_SUCCESS);
    Seen in_stream;
    ASSERT_EQ(aclrtLaunchHostFunc(stream, &Seen::look, &in_stream), ACL_SUCCESS);
    in_stream.expect_mask_of_program("hccl-stream");
    ASSERT_EQ(aclrtDestroyStream(stream), ACL_SUCCESS);

    ApiWorld world(2);
    Seen of_message;
    std::int32_t got = 0;
    ASSERT_EQ(HcclIrecv(&got, 4, 1, 7, world.comm(0), &Seen::look_too, &of_message, nullptr),
              HCCL_SUCCESS);
    const std::int32_t sent = 42;
    ASSERT_EQ(HcclIsend(&sent, 4, 0, 7, world.comm(1), nullptr, nullptr, nullptr), HCCL_SUCCESS);
    of_message.expect_mask_of_program("hccl-messages");
    EXPECT_EQ(got, 42);
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

#undef DO

}  // namespace
}  // namespace hccl::testing::signals_test
