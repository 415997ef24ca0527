// The shared region, used as the local algorithms use it (hccl/local: inline, slots, staged, push).
#include <cstring>
#include <optional>

#include "hccl/local/region.cc"  // the templates' bodies. NOLINT(bugprone-suspicious-include)
#include "tests/models/cases.h"

namespace hccl::model {
namespace {

using Region = local::BasicRegion<ModelAtomics>;
using AbortFlag = BasicAbortFlag<ModelAtomics>;
using local::Progress;

/// The memory and the objects of the ranks of one host.
struct Host {
  explicit Host(int size) : memory(static_cast<std::size_t>(size)), flags(memory.size()) {
    regions.resize(memory.size());
    const std::size_t bytes = Region::bytes(size);
    std::byte* const area = shared_memory(bytes, std::size_t{16} << 10);
    for (std::size_t rank = 0; rank < memory.size(); ++rank) {
      for (int peer = 0; peer < size; ++peer) memory[rank].ranks.push_back(peer);
      memory[rank].local_rank = static_cast<int>(rank);
      memory[rank].area = {area, bytes};
      flags[rank] = std::make_unique<AbortFlag>();
      const BasicWaiter<ModelAtomics> waiter{.abort = flags[rank].get(), .policy = kSleeps};
      regions[rank].emplace(memory[rank], waiter, kSleeps);
    }
  }
  Region& region(int rank) { return *regions[static_cast<std::size_t>(rank)]; }
  /// Raises a failure, as a control line does.
  void abort(int rank) {
    const auto own = static_cast<std::size_t>(rank);
    flags[own]->raise(Status(Code::kRemote, "a rank has died", 1));
    regions[own]->waits().wake();
  }
  std::vector<HostMemory> memory;
  std::vector<std::unique_ptr<AbortFlag>> flags;
  std::vector<std::optional<Region>> regions;
};

using Body = std::function<void(Region&)>;

Case of(std::string name, int ranks, Bounds bounds, const Body& body) {
  return {std::move(name),
          [=](World& world) {
            const auto host = std::make_shared<Host>(ranks);
            world.share(host->memory[0].area.data(), host->memory[0].area.size());
            for (int rank = 0; rank < ranks; ++rank) {
              world.thread(rank, "rank " + std::to_string(rank), [=] { body(host->region(rank)); });
            }
          },
          bounds};
}

/// One rank may die before any step. Control lines inform the other ranks.
Case with_a_death(std::string name, int ranks, Bounds bounds, const Body& body) {
  return {std::move(name),
          [=](World& world) {
            const auto host = std::make_shared<Host>(ranks);
            world.share(host->memory[0].area.data(), host->memory[0].area.size());
            world.mortal = ranks - 1;
            for (int rank = 0; rank < ranks; ++rank) {
              world.thread(rank, "rank " + std::to_string(rank), [=] { body(host->region(rank)); });
              if (rank == world.mortal) continue;
              world.daemon(rank, "control line " + std::to_string(rank), [=] {
                static_cast<void>(await_death());
                host->abort(rank);
              });
            }
          },
          bounds};
}

Envelope call(std::uint64_t number, std::uint64_t count = 1) {
  Envelope made;
  made.sequence = number;
  made.count = count;
  return made;
}

void put(std::byte* at, std::uint64_t value) { std::memcpy(at, &value, sizeof value); }
std::uint64_t get(const std::byte* at) {
  std::uint64_t value = 0;
  std::memcpy(&value, at, sizeof value);
  return value;
}
std::uint64_t input(int rank, std::uint64_t number) {
  return number * 16 + static_cast<std::uint64_t>(rank) + 1;
}

// Algorithm inline: the data is in the slots. False: the operation failed.
bool inline_operation(Region& region, std::uint64_t number) {
  const Envelope this_call = call(number);
  region.begin(this_call, false);
  put(region.payload(), input(region.local_rank(), number));
  region.announce();
  if (const Status status = region.await_announced(); !status.ok()) {
    check(status.code() == Code::kRemote && status.culprit() == 1, "failed for another reason");
    return false;
  }
  for (int peer = 0; peer < region.size(); ++peer) {
    check(get(region.payload(peer)) == input(peer, number), "another operation's payload");
  }
  return true;
}

// Algorithm slots: the whole input is in the staging buffer.
void slots_operation(Region& region, std::uint64_t number, std::size_t bytes) {
  const Envelope this_call = call(number);
  region.begin(this_call, false);
  const std::size_t at = region.staging().next_whole(bytes);
  put(region.staging().of(region.local_rank()) + at, input(region.local_rank(), number));
  region.announce();
  check(region.await_announced().ok(), "an operation failed");
  for (int peer = 0; peer < region.size(); ++peer) {
    check(get(region.staging().of(peer) + at) == input(peer, number), "another operation's input");
  }
}

// Algorithm staged: chunks; the staging buffer has room for `window` of them, at least two.
void staged_operation(Region& region, std::uint64_t number, std::uint64_t chunks,
                      std::uint64_t window) {
  const Envelope this_call = call(number);
  region.begin(this_call, false);
  region.announce();
  check(region.await_announced().ok(), "an operation failed");
  const auto place = [&](int peer, std::uint64_t chunk) {
    return region.staging().chunks(peer) + (region.staging().chunks_before() + chunk) % window * 64;
  };
  for (std::uint64_t step = 0; step <= chunks; ++step) {
    if (step < chunks) {
      if (step >= window) {
        check(region.await_all(Progress::kTaken, step - window).ok(), "no room came");
      }
      put(place(region.local_rank(), step), input(region.local_rank(), number + step));
      region.done(Progress::kStaged, step);
    }
    if (step == 0) continue;
    check(region.await_all(Progress::kStaged, step - 1).ok(), "no chunk came");
    for (int peer = 0; peer < region.size(); ++peer) {
      check(get(place(peer, step - 1)) == input(peer, number + step - 1), "another chunk");
    }
    region.done(Progress::kTaken, step - 1);
  }
  region.staging().end_chunks(chunks);
}

// Algorithm push: each rank stores into the outputs of its peers, and all leave together. Here the
// outputs are in the staging buffers, with a cache line for each giver.
void push_operation(Region& region, std::uint64_t number) {
  const Envelope this_call = call(number);
  region.begin(this_call, false);
  const auto out = [&](int taker, int giver) { return region.staging().of(taker) + giver * 64; };
  for (int giver = 0; giver < region.size(); ++giver) put(out(region.local_rank(), giver), 0);
  region.announce();
  check(region.await_announced().ok(), "an operation failed");
  for (int taker = 0; taker < region.size(); ++taker) {
    put(out(taker, region.local_rank()), input(region.local_rank(), number));
  }
  check(region.barrier().ok(), "a barrier failed");
  for (int giver = 0; giver < region.size(); ++giver) {
    check(get(out(region.local_rank(), giver)) == input(giver, number), "an output is not there");
  }
}

void differing_calls(Region& region) {
  const Envelope this_call = call(1, static_cast<std::uint64_t>(region.local_rank()) + 1);
  region.begin(this_call, false);
  region.announce();
  const Status status = region.await_announced();
  check(status.code() == Code::kPara, "calls that differ were not found");
  check(status.message().find("count 1") != std::string::npos &&
            status.message().find("count 2") != std::string::npos,
        "the text does not have both calls");
}

// Announces an operation, and withdraws the announcement after a failure.
Status announced(Region& region, std::uint64_t payload) {
  const Envelope this_call = call(1);
  region.begin(this_call, false);
  put(region.payload(), payload);
  region.announce();
  Status status = region.await_announced();
  if (!status.ok()) region.withdraw();
  return status;
}

/// A rank gets a failure and withdraws its announcement, while another rank announces.
Case withdrawn() {
  return {"an announcement taken back",
          [](World& world) {
            const auto host = std::make_shared<Host>(2);
            world.share(host->memory[0].area.data(), host->memory[0].area.size());
            world.thread(0, "rank 0", [=] { static_cast<void>(announced(host->region(0), 5)); });
            world.thread(0, "control line 0", [=] { host->abort(0); });
            world.thread(1, "rank 1", [=] {
              Region& region = host->region(1);
              const Status status = announced(region, 6);
              check(status.ok() || status.code() == Code::kRemote, "another failure");
              if (status.ok()) check(get(region.payload(0)) == 5, "another payload");
            });
            world.thread(1, "control line 1", [=] { host->abort(1); });
          },
          {.preemptions = 1, .stale = 1}};
}

/// A rank that announces after the withdrawal must fail, because the caller of the other rank has
/// its buffers back.
Case withdrawn_before() {
  return {"an announcement taken back before",
          [](World& world) {
            const auto host = std::make_shared<Host>(2);
            world.share(host->memory[0].area.data(), host->memory[0].area.size());
            world.thread(0, "rank 0, then rank 1", [=] {
              Region& region = host->region(0);
              host->abort(0);
              check(!announced(region, 5).ok(), "success without a peer");
              check(announced(host->region(1), 6).code() == Code::kRemote, "it went on");
            });
            world.thread(1, "control line 1", [=] { host->abort(1); });
          },
          {}};
}

}  // namespace

std::vector<Case> region_cases(int ranks) {
  const Bounds bounds = ranks == 2 ? Bounds{} : Bounds{.preemptions = 1, .stale = 1};
  std::vector<Case> cases;
  cases.push_back(of("inline, three rounds", ranks, bounds, [](Region& region) {
    for (std::uint64_t number = 1; number <= 3; ++number) inline_operation(region, number);
  }));
  cases.push_back(
      of("slots round the buffer", ranks, {.preemptions = 1, .stale = 1}, [](Region& region) {
        for (std::uint64_t number = 1; number <= 5; ++number) {
          slots_operation(region, number, local::Staging::kMostWhole);
        }
      }));
  cases.push_back(
      of("slots, staged, slots", ranks, {.preemptions = 1, .stale = 1}, [](Region& region) {
        slots_operation(region, 1, 64);
        staged_operation(region, 2, 2, 2);
        slots_operation(region, 3, 64);
      }));
  cases.push_back(of("staged, room for two chunks", ranks, {.preemptions = 1, .stale = 1},
                     [](Region& region) { staged_operation(region, 1, 3, 2); }));
  cases.push_back(of("push, two rounds", ranks, {.preemptions = 1, .stale = 1}, [](Region& region) {
    push_operation(region, 1);
    push_operation(region, 2);
  }));
  cases.push_back(with_a_death("a rank dies at any step", ranks, {.preemptions = 1, .stale = 1},
                               [](Region& region) {
                                 if (inline_operation(region, 1)) inline_operation(region, 2);
                               }));
  if (ranks == 2) {
    cases.push_back(of("calls that differ", ranks, bounds, differing_calls));
    cases.push_back(withdrawn());
    cases.push_back(withdrawn_before());
  }
  return cases;
}

}  // namespace hccl::model
