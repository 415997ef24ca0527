// Shared memory between ranks that are processes, and what remains when one is killed.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <thread>

#include "hccl/base/socket.h"
#include "hccl/memory/heap.h"
#include "tests/support/folder.h"
#include "tests/support/ranks.h"
#include "tests/support/siblings.h"
#include "transport/shm/handover.h"
#include "transport/shm/shm.h"

namespace hccl::transport {
namespace {

namespace fs = std::filesystem;
using std::chrono::seconds;
using testing::exchange_all;
using testing::pattern;
using testing::wait_all;
using testing::wait_one;

constexpr std::size_t kCap = 1 << 20;

/// Fails if this process has a file of /dev/shm open or mapped. (The folder itself is no evidence:
/// other programs may have files there.)
void expect_no_named_memory() {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    const bool shared =
        line.find("s ") == line.find(' ') + 4;  // "begin-end rw-s ..."; programs are private
    EXPECT_FALSE(shared && line.find("/dev/shm/") != std::string::npos) << line;
  }
  for (const auto& entry : fs::directory_iterator("/proc/self/fd")) {
    std::error_code gone;  // the folder's descriptor is closed now
    EXPECT_NE(fs::read_symlink(entry, gone).parent_path(), "/dev/shm") << entry;
  }
}

/// Forked ranks. This process distributes the data that the ranks exchange.
class Family {
 public:
  using Body = std::function<void(OpenArgs&)>;

  /// Starts ranks that use the folder `place` to join.
  Family(const testing::Folder& place, int size, const Body& body) {
    for (int r = 0; r < size; ++r) {
      int ends[2];
      if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0)
        ::_exit(9);
      const pid_t pid = ::fork();
      if (pid == 0) {
        sockets_.clear();
        ::close(ends[0]);
        be_rank(place, r, size, ends[1], body);
      }
      ::close(ends[1]);
      sockets_.emplace_back(ends[0]);
      pids_.push_back(pid);
    }
  }

  /// Serves one exchange of all ranks that still take part.
  void pass_round() {
    ByteWriter all;
    for (const Fd& socket : sockets_) {
      auto blob = socket.valid() ? recv_frame(socket.get(), kCap, limit()) : std::string();
      EXPECT_TRUE(blob.ok()) << blob.status().message();
      all.put_text(blob.ok() ? *blob : std::string());
    }
    for (const Fd& socket : sockets_) {
      if (socket.valid()) static_cast<void>(send_frame(socket.get(), all.bytes(), limit()));
    }
  }
  void pass_rounds(int rounds) {
    while (rounds-- > 0) pass_round();
  }

  void kill_rank(int rank) {
    const auto r = static_cast<std::size_t>(rank);
    ::kill(pids_[r], SIGKILL);
    ::waitpid(pids_[r], nullptr, 0);
    pids_[r] = 0;
    sockets_[r].reset();
  }

  /// Expects that every rank that was not killed ends without a failed expectation.
  ~Family() {
    for (std::size_t r = 0; r < pids_.size(); ++r) {
      if (pids_[r] == 0) continue;
      int status = 0;
      ::waitpid(pids_[r], &status, 0);
      EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0)
          << "rank " << r << " ended with status " << status;
    }
  }

 private:
  static Deadline limit() { return Deadline::after(seconds(60)); }

  [[noreturn]] static void be_rank(const testing::Folder& place, int rank, int size, int socket,
                                   const Body& body) {
    Config config = Config::read().value();
    config.meeting_places = {place.path()};
    OpenArgs args;
    args.config = &config;
    args.siblings = testing::siblings();
    args.rank = rank;
    args.size = size;
    args.hosts.assign(static_cast<std::size_t>(size), 0);
    args.deadline = limit();
    args.key[0] = 42;
    args.exchange = [socket, size](std::string mine,
                                   Deadline deadline) -> Result<std::vector<std::string>> {
      HCCL_RETURN_IF_ERROR(send_frame(socket, mine, deadline));
      HCCL_ASSIGN_OR_RETURN(const std::string all, recv_frame(socket, kCap, deadline));
      ByteReader reader(all);
      std::vector<std::string> blobs;
      for (int r = 0; r < size; ++r) blobs.push_back(reader.get_text(kCap));
      return blobs;
    };
    body(args);
    std::fflush(nullptr);
    ::_exit(::testing::Test::HasFailure() ? 1 : 0);
  }

  std::vector<Fd> sockets_;
  std::vector<pid_t> pids_;
};

void barrier(const OpenArgs& args) { EXPECT_TRUE(args.exchange("", args.deadline).ok()); }

class ShmProcesses : public ::testing::Test {
 protected:
  /// Folders that leaders have left in this user's folder.
  std::size_t count_left() const {
    const auto own = fs::directory_iterator(folder_ / ("hccl-" + std::to_string(::geteuid())));
    return static_cast<std::size_t>(std::distance(begin(own), end(own)));
  }
  testing::Folder folder_;
};

TEST_F(ShmProcesses, ExchangeData) {
  Family family(folder_, 3, [](OpenArgs& args) {
    auto mesh = open_shm(args);
    ASSERT_TRUE(mesh.ok()) << mesh.status().message();
    for (const std::size_t bytes : {4, 70'000, 3 << 20}) exchange_all(**mesh, bytes);
    barrier(args);
  });
  family.pass_rounds(shm::kRounds + 1);
}

TEST_F(ShmProcesses, LeaveNothingBehindEvenWhenKilled) {
  Family family(folder_, 3, [](OpenArgs& args) {
    auto mesh = open_shm(args);
    ASSERT_TRUE(mesh.ok()) << mesh.status().message();
    expect_no_named_memory();
    barrier(args);
    if (args.rank == 2) ::pause();  // waits to be killed; it has sent nothing
    barrier(args);
    // The other ranks do not wait for the dead rank.
    const auto sent = pattern(1 << 20, static_cast<std::uint64_t>(args.rank));
    std::vector<std::byte> got(sent.size());
    Request send;
    Request receive;
    (*mesh)->send(send, 1 - args.rank, 0, sent);
    (*mesh)->recv(receive, 1 - args.rank, 0, got);
    ASSERT_TRUE(wait_all(**mesh, {&send, &receive}).ok());
    ASSERT_EQ(got, pattern(1 << 20, static_cast<std::uint64_t>(1 - args.rank)));
    // The communicator calls abort, which ends the requests for the dead rank.
    (*mesh)->recv(receive, 2, 0, got);
    (*mesh)->abort(Status(Code::kRemote, "rank 2 died", 2));
    EXPECT_EQ(wait_one(**mesh, receive).culprit(), 2);
    barrier(args);
  });
  family.pass_rounds(shm::kRounds + 1);
  EXPECT_TRUE(count_left() == 0) << "while the mesh is open";
  family.kill_rank(2);
  EXPECT_TRUE(count_left() == 0) << "after a rank was killed";
  family.pass_rounds(2);
  EXPECT_TRUE(count_left() == 0);
}

// A leader that is killed between the exchanges leaves its directory, which the next leader
// removes. A living leader's directory stays.
TEST_F(ShmProcesses, LeaveNothingBehindWhenALeaderIsKilledWhileItOpens) {
  const auto alone = [](OpenArgs& args) { EXPECT_FALSE(open_shm(args).ok()); };
  Family living(folder_, 2, alone), killed(folder_, 2, alone);
  living.pass_round();
  killed.pass_round();
  killed.kill_rank(0);
  killed.kill_rank(1);
  EXPECT_EQ(count_left(), 2u);
  {
    Family next(folder_, 2, [](OpenArgs& args) { EXPECT_TRUE(open_shm(args).ok()); });
    next.pass_rounds(shm::kRounds);
  }
  EXPECT_EQ(count_left(), 1u) << "that of the living leader";
  living.kill_rank(1);
  living.pass_rounds(shm::kRounds - 1);
}

TEST_F(ShmProcesses, LeaveNothingBehindWhenOpeningFails) {
  Family family(folder_, 3, [](OpenArgs& args) {
    if (args.rank == 2) args.key[1] = 1;
    EXPECT_FALSE(open_shm(args).ok());
    barrier(args);
  });
  family.pass_rounds(shm::kRounds + 1);
  EXPECT_TRUE(count_left() == 0);
}

// In the first place the name of a socket would be too long: it has at most 107 characters.
TEST_F(ShmProcesses, OpenInTheNextPlace) {
  Family family(folder_, 2, [](OpenArgs& args) {
    Config config = *args.config;
    config.meeting_places.insert(config.meeting_places.begin(),
                                 config.meeting_places[0] + "/" + std::string(100, 'x'));
    if (args.rank == 0) fs::create_directory(config.meeting_places[0]);
    args.config = &config;
    EXPECT_TRUE(open_shm(args).ok());
  });
  family.pass_rounds(shm::kRounds);
}

// The device heaps of other ranks stay mapped, but their descriptors are closed.
TEST_F(ShmProcesses, KeepNoDescriptorOfAnotherRanksHeap) {
  Family family(folder_, 3, [](OpenArgs& args) {
    args.heap = memory::Heap::create(std::size_t{64} << 20).value();
    args.area_bytes = [](int) { return std::size_t{4096}; };  // without an area no rank maps a heap
    auto mesh = open_shm(args);
    ASSERT_TRUE(mesh.ok()) << mesh.status().message();
    ASSERT_TRUE((*mesh)->host_memory()->heaps_shared());
    int heaps = 0;
    for (const auto& entry : fs::directory_iterator("/proc/self/fd")) {
      std::error_code gone;  // the folder's descriptor is closed now
      if (fs::read_symlink(entry, gone).string().starts_with("/memfd:hccl-heap")) ++heaps;
    }
    EXPECT_EQ(heaps, 1) << "this rank's own";
    barrier(args);
  });
  family.pass_rounds(shm::kRounds + 1);
}

// Rank 1 has the segment, and answers only after rank 2 has the segment, too.
TEST_F(ShmProcesses, GetTheSegmentBeforeTheFirstHasAnswered) {
  static std::atomic<int>* served = nullptr;
  static int own_rank = -1;
  void* const page =
      ::mmap(nullptr, sizeof *served, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(page, MAP_FAILED);
  served = new (page) std::atomic<int>(0);
  {
    Family family(folder_, 3, [](OpenArgs& args) {
      own_rank = args.rank;
      // A member calls this once it has the segment.
      args.area_bytes = [](int) -> std::size_t {
        if (own_rank == 2) *served = 1;
        const Deadline late = Deadline::after(seconds(30));
        while (own_rank == 1 && *served == 0 && !late.expired()) {
          std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
        return 0;
      };
      EXPECT_TRUE(open_shm(args).ok());
    });
    family.pass_rounds(shm::kRounds);
  }
  ::munmap(page, sizeof *served);
}

/// Runs the body for `number` ranks of a process, as threads. Thread 0 exchanges data for the
/// process.
void run_threads(const OpenArgs& process, int number,
                 const std::function<void(OpenArgs&, int)>& body) {
  struct Round {
    std::vector<std::string> mine;
    Result<std::vector<std::string>> all = std::vector<std::string>();
  };
  Round round{.mine = std::vector<std::string>(static_cast<std::size_t>(number))};
  Doorbell bell;
  std::atomic<int> arrived{0};
  std::atomic<int> finished{0};
  const auto exchange_of = [&](int thread) {
    return [&, thread](std::string mine, Deadline deadline) -> Result<std::vector<std::string>> {
      round.mine[static_cast<std::size_t>(thread)] = std::move(mine);
      const int turn = ++arrived;
      bell.ring();
      const int goal = (turn + number - 1) / number * number;
      const auto await = [&](const std::atomic<int>& count) {
        const Waiter waiter{.deadline = deadline, .policy = {.shared_cores = true}};
        static_cast<void>(waiter.until([&] { return count.load() >= goal; }, bell));
      };
      if (thread == 0) {
        await(arrived);
        ByteWriter ours;
        for (const std::string& each : round.mine) ours.put_text(each);
        auto gathered = process.exchange(ours.take(), deadline);
        if (gathered.ok()) {
          std::vector<std::string> all;
          for (const std::string& theirs : *gathered) {
            ByteReader reader(theirs);
            for (int i = 0; i < number; ++i) all.push_back(reader.get_text(kCap));
          }
          round.all = all;
        } else {
          round.all = gathered.status();
        }
        finished = goal;
        bell.ring();
      } else {
        await(finished);
      }
      return round.all;
    };
  };
  std::vector<std::jthread> threads;
  for (int thread = 0; thread < number; ++thread) {
    threads.emplace_back([&, thread] {
      OpenArgs args = process;
      args.rank = number * process.rank + thread;
      args.size = number * process.size;
      args.hosts.assign(static_cast<std::size_t>(args.size), 0);
      args.exchange = exchange_of(thread);
      body(args, thread);
    });
  }
}

/// The segments that this process has mapped.
int count_mapped() {
  int mapped = 0;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    if (line.find("memfd:hccl-shm") != std::string::npos) ++mapped;
  }
  return mapped;
}

// Two processes of two ranks each.
TEST_F(ShmProcesses, MixWithThreads) {
  Family family(folder_, 2, [](OpenArgs& process) {
    run_threads(process, 2, [](OpenArgs& args, int) {
      auto mesh = open_shm(args);
      ASSERT_TRUE(mesh.ok()) << mesh.status().message();
      for (const std::size_t bytes : {4, 70'000, 3 << 20}) exchange_all(**mesh, bytes);
      barrier(args);
    });
  });
  family.pass_rounds(shm::kRounds + 1);
}

// The ranks of a process share one mapping, and one descriptor for waking each rank, even if the
// leader is in another process. The ranks have two meshes at a time.
TEST_F(ShmProcesses, RanksOfAProcessShareWhatTheyMapAndKeepOpen) {
  static constexpr int kThreads = 8;
  Family family(folder_, 2, [](OpenArgs& process) {
    run_threads(process, kThreads, [](OpenArgs& args, int thread) {
      auto first = open_shm(args);
      auto second = open_shm(args);
      ASSERT_TRUE(first.ok()) << first.status().message();
      ASSERT_TRUE(second.ok()) << second.status().message();
      barrier(args);
      if (thread == 0) {
        EXPECT_EQ(count_mapped(), 2);
        int wakes = 0;
        for (const auto& entry : fs::directory_iterator("/proc/self/fd")) {
          std::error_code gone;  // the folder's descriptor is closed now
          if (fs::read_symlink(entry, gone) == "anon_inode:[eventfd]") ++wakes;
        }
        EXPECT_LE(wakes, 2 * (kThreads + args.size)) << "each rank's own, and one to wake each";
      }
      barrier(args);
      exchange_all(**first, 70'000);
      first->reset();
      exchange_all(**second, 70'000);
      barrier(args);
    });
  });
  family.pass_rounds(2 * shm::kRounds + 3);
}

// The first rank of a process cannot map the segment, so no rank of that process gets the segment.
// The next mesh opens.
TEST_F(ShmProcesses, ShareNothingIfTheFirstOfThemCannotMapIt) {
  Family family(folder_, 2, [](OpenArgs& process) {
    run_threads(process, 3, [&process](OpenArgs& args, int thread) {
      OpenArgs wrong = args;
      wrong.area_bytes = [](int) { return std::size_t{4096}; };
      if (process.rank == 1 && thread == 0) {  // this rank expects a longer segment
        wrong.area_bytes = [](int) { return std::size_t{8192}; };
      }
      EXPECT_FALSE(open_shm(wrong).ok());
      EXPECT_FALSE(args.deadline.expired());
      auto mesh = open_shm(args);
      ASSERT_TRUE(mesh.ok()) << mesh.status().message();
      barrier(args);
      if (thread == 0) {
        EXPECT_EQ(count_mapped(), 1);
      }
      exchange_all(**mesh, 70'000);
      barrier(args);
    });
  });
  family.pass_rounds(2 * shm::kRounds + 2);
}

}  // namespace
}  // namespace hccl::transport
