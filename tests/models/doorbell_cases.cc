// Doorbells, waits and aborts.
#include <cstring>
#include <new>

#include "hccl/base/doorbell.h"
#include "tests/models/cases.h"

namespace hccl::model {
namespace {

using Bell = BasicDoorbell<ModelAtomics>;
using Waiter = BasicWaiter<ModelAtomics>;
using AbortFlag = BasicAbortFlag<ModelAtomics>;
using Flag = ModelAtomics::atomic<std::uint32_t>;

struct Room {
  Bell bell;
  Flag flag[2];
  struct alignas(64) {
    std::uint64_t value;
  } data[2];
};

/// Between threads; between processes; between processes if the kernel offers no membarrier.
enum class BellKind { kThreads, kProcesses, kWithoutMembarrier };

Room& room_of(World& world, BellKind kind) {
  std::byte* const at = shared_memory(sizeof(Room), sizeof(Room));
  world.share(at, sizeof(Room));
  world.membarrier = kind != BellKind::kWithoutMembarrier;
  auto* const room = reinterpret_cast<Room*>(at);
  if (kind == BellKind::kThreads) new (&room->bell) Bell;
  return *room;
}

void give(Room& room, int which) {
  room.data[which].value = 7;
  room.flag[which].store(1, Order::release);
  room.bell.ring();
}

void take(Room& room, int which) {
  const Waiter waiter{.policy = kSleeps};
  const auto ready = [&] { return room.flag[which].load(Order::acquire) != 0; };
  check(waiter.until(ready, room.bell) == Waited::kReady, "a wait that was not aborted ends so");
  check(room.data[which].value == 7, "the data is not there");
}

using Body = void (*)(Room&);

Case of(std::string name, BellKind kind, const std::vector<Body>& bodies, Bounds bounds) {
  return {std::move(name),
          [=](World& world) {
            Room& room = room_of(world, kind);
            int rank = 0;
            for (const Body body : bodies) {
              world.thread(rank, "rank " + std::to_string(rank), [=, &room] {
                if (kind != BellKind::kThreads) room.bell.join();
                body(room);
              });
              ++rank;
            }
          },
          bounds};
}

/// An abort ends a wait, after which the reason can be read.
Case abort_case() {
  return {"an abort",
          [](World& world) {
            Room& room = room_of(world, BellKind::kProcesses);
            const auto flag = std::make_shared<AbortFlag>();
            world.thread(0, "waiting rank", [=, &room] {
              room.bell.join();
              const Waiter waiter{.abort = flag.get(), .policy = kSleeps};
              const auto never = [&] { return room.flag[0].load(Order::acquire) != 0; };
              check(waiter.until(never, room.bell) == Waited::kAborted, "the wait went on");
              check(flag->reason().culprit() == 3, "the first reason did not stay");
            });
            world.thread(0, "control line", [=, &room] {
              check(flag->raise(Status(Code::kRemote, "died", 3)), "another reason was first");
              room.bell.wake();
              check(!flag->raise(Status(Code::kRemote, "died", 4)), "a second reason won");
            });
          },
          {}};
}

}  // namespace

std::vector<Case> doorbell_cases() {
  const Body give_0 = [](Room& room) { give(room, 0); };
  const Body give_1 = [](Room& room) { give(room, 1); };
  const Body take_0 = [](Room& room) { take(room, 0); };
  const Body answer = [](Room& room) {
    take(room, 0);
    give(room, 1);
  };
  const Body ask = [](Room& room) {
    give(room, 0);
    take(room, 1);
  };
  const Body take_both = [](Room& room) {
    take(room, 0);
    take(room, 1);
  };
  std::vector<Case> cases;
  for (const auto& [kind, where] :
       {std::pair{BellKind::kThreads, "threads: "}, std::pair{BellKind::kProcesses, "processes: "},
        std::pair{BellKind::kWithoutMembarrier, "no membarrier: "}}) {
    const std::string of_kind = where;
    cases.push_back(of(of_kind + "question and answer", kind, {ask, answer}, {}));
    cases.push_back(of(of_kind + "two ringers", kind, {give_0, give_1, take_both}, {.stale = 1}));
    cases.push_back(of(of_kind + "two sleepers", kind, {give_0, take_0, take_0}, {.stale = 1}));
  }
  cases.push_back(abort_case());
  return cases;
}

}  // namespace hccl::model
