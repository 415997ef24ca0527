// The explorer itself, with programs of a few lines whose outcomes C++20's memory model defines.
#include <gtest/gtest.h>

#include <set>

#include "tests/models/model.h"

namespace hccl::model {
namespace {

using Atomic = ModelAtomics::atomic<std::uint32_t>;
constexpr Order kRelaxed = Order::relaxed, kAcquire = Order::acquire, kRelease = Order::release,
                kSeqCst = Order::seq_cst;

struct Memory {
  Atomic x{0}, y{0};
  std::uint64_t plain = 0;
  std::array<std::uint32_t, 8> got{};
};

using Body = std::function<void(Memory&)>;

// Returns every outcome of the threads, as the digits of their results.
std::set<std::string> outcomes(const std::vector<Body>& bodies, int gets) {
  std::set<std::string> found;
  Memory* last = nullptr;
  const auto note = [&] {
    std::string digits;
    for (int i = 0; i < gets; ++i) digits += std::to_string(last->got[static_cast<std::size_t>(i)]);
    found.insert(digits);
  };
  const Outcome outcome = explore(
      [&](World& world) {
        if (last != nullptr) note();
        const auto memory = std::make_shared<Memory>();
        last = memory.get();
        int rank = 0;
        for (const Body& body : bodies) {
          world.thread(rank, "thread " + std::to_string(rank), [memory, body] { body(*memory); });
          ++rank;
        }
      },
      {.preemptions = 3, .stale = 3});
  EXPECT_TRUE(outcome.ok()) << outcome.failure << "\n" << outcome.trace;
  EXPECT_GT(outcome.executions, 1u);
  return found;
}

std::vector<Body> store_buffers(Order store, Order load, std::function<void()> between) {
  return {[=](Memory& m) {
            m.x.store(1, store);
            between();
            m.got[0] = m.y.load(load);
          },
          [=](Memory& m) {
            m.y.store(1, store);
            between();
            m.got[1] = m.x.load(load);
          }};
}

TEST(Explorer, BuffersStores) {
  const auto nothing = [] {};
  EXPECT_TRUE(outcomes(store_buffers(kRelease, kAcquire, nothing), 2).contains("00"));
  EXPECT_TRUE(outcomes(store_buffers(kSeqCst, kAcquire, nothing), 2).contains("00"));
  EXPECT_TRUE(outcomes(store_buffers(kRelease, kSeqCst, nothing), 2).contains("00"));
  const auto all = outcomes(store_buffers(kSeqCst, kSeqCst, nothing), 2);
  EXPECT_EQ(all, (std::set<std::string>{"01", "10", "11"}));
  const auto fence = [] { ModelAtomics::thread_fence(kSeqCst); };
  EXPECT_FALSE(outcomes(store_buffers(kRelaxed, kRelaxed, fence), 2).contains("00"));
  const auto weak = [] { ModelAtomics::thread_fence(Order::acq_rel); };
  EXPECT_TRUE(outcomes(store_buffers(kRelaxed, kRelaxed, weak), 2).contains("00"));
}

TEST(Explorer, PairsLightWithHeavyFences) {
  const auto with = [](bool light, bool heavy) {
    return outcomes({[=](Memory& m) {
                       m.x.store(1, kRelaxed);
                       if (light) ModelAtomics::compiler_fence();
                       m.got[0] = m.y.load(kRelaxed);
                     },
                     [=](Memory& m) {
                       m.y.store(1, kRelaxed);
                       if (heavy) ModelAtomics::fence_everywhere();
                       m.got[1] = m.x.load(kRelaxed);
                     }},
                    2)
        .contains("00");
  };
  EXPECT_FALSE(with(true, true));
  EXPECT_TRUE(with(true, false));
  EXPECT_TRUE(with(false, true));
}

TEST(Explorer, PassesMessages) {
  const auto with = [](Order store, Order load) {
    return outcomes({[=](Memory& m) {
                       m.x.store(1, kRelaxed);
                       m.y.store(1, store);
                     },
                     [=](Memory& m) {
                       m.got[0] = m.y.load(load);
                       m.got[1] = m.x.load(kRelaxed);
                     }},
                    2)
        .contains("10");
  };
  EXPECT_FALSE(with(kRelease, kAcquire));
  EXPECT_TRUE(with(kRelaxed, kAcquire));
  EXPECT_TRUE(with(kRelease, kRelaxed));
}

TEST(Explorer, KeepsReleaseSequencesOfChangesOnly) {
  const auto with = [](const Body& between) {
    return outcomes({[](Memory& m) {
                       m.x.store(1, kRelaxed);
                       m.y.store(1, kRelease);
                     },
                     between,
                     [](Memory& m) {
                       m.got[0] = m.y.load(kAcquire);
                       m.got[1] = m.x.load(kRelaxed);
                     }},
                    2)
        .contains("20");
  };
  EXPECT_FALSE(with([](Memory& m) {
    if (m.y.load(kRelaxed) == 1) m.y.fetch_add(1, kRelaxed);
  }));
  EXPECT_TRUE(with([](Memory& m) {
    if (m.y.load(kRelaxed) == 1) m.y.store(2, kRelaxed);
  }));
}

TEST(Explorer, LetsReadersDisagreeUnlessSeqCst) {
  const auto with = [](Order store, Order load) {
    return outcomes(
               {[=](Memory& m) { m.x.store(1, store); }, [=](Memory& m) { m.y.store(1, store); },
                [=](Memory& m) {
                  m.got[0] = m.x.load(load);
                  m.got[1] = m.y.load(load);
                },
                [=](Memory& m) {
                  m.got[2] = m.y.load(load);
                  m.got[3] = m.x.load(load);
                }},
               4)
        .contains("1010");
  };
  EXPECT_TRUE(with(kRelease, kAcquire));
  EXPECT_FALSE(with(kSeqCst, kSeqCst));
}

TEST(Explorer, ReadsOneLocationInOrder) {
  const auto all = outcomes({[](Memory& m) {
                               m.x.store(1, kRelaxed);
                               m.x.store(2, kRelaxed);
                             },
                             [](Memory& m) {
                               m.got[0] = m.x.load(kRelaxed);
                               m.got[1] = m.x.load(kRelaxed);
                             }},
                            2);
  EXPECT_EQ(all, (std::set<std::string>{"00", "01", "02", "11", "12", "22"}));
}

// The errors that the explorer finds if one thread sets x and rings while another thread waits for
// x.
Outcome ring(Order store, Order load, bool ticket_first, bool wakes) {
  return explore(
      [=](World& world) {
        static Memory memory;
        new (&memory) Memory;
        world.share(&memory.plain, sizeof memory.plain);
        world.thread(0, "ringer", [=] {
          memory.plain = 5;
          memory.x.store(1, store);
          memory.y.fetch_add(1, kSeqCst);
          if (wakes) ModelAtomics::wake_all(memory.y);
        });
        world.thread(1, "sleeper", [=] {
          for (;;) {
            const std::uint32_t early = ticket_first ? memory.y.load(kSeqCst) : 0;
            if (memory.x.load(load) == 1) break;
            const std::uint32_t ticket = ticket_first ? early : memory.y.load(kSeqCst);
            ModelAtomics::sleep(memory.y, ticket, {});
          }
          check(memory.plain == 5, "got what was not sent");
        });
      },
      {});
}

TEST(Explorer, FindsRacesAndLostWakeUps) {
  EXPECT_EQ(ring(kRelease, kAcquire, true, true).failure, "");
  EXPECT_EQ(ring(kRelease, kAcquire, true, false).failure, "sleeper waits for ever");
  EXPECT_EQ(ring(kRelease, kAcquire, false, true).failure, "sleeper waits for ever");
  const std::string race = "data race at byte 0 of shared memory: sleeper reads what ringer writes";
  const Outcome relaxed = ring(kRelaxed, kAcquire, true, true);
  EXPECT_EQ(relaxed.failure, race);
  EXPECT_NE(relaxed.trace.find("store w0 = 1 (relaxed)"), std::string::npos) << relaxed.trace;
  EXPECT_EQ(ring(kRelease, kRelaxed, true, true).failure, race);
}

TEST(Explorer, KillsARankAtEveryStep) {
  std::set<std::uint32_t> seen;
  const Outcome outcome = explore(
      [&](World& world) {
        const auto memory = std::make_shared<Memory>();
        world.mortal = 0;
        world.thread(0, "mortal", [=] {
          for (std::uint32_t i = 1; i < 4; ++i) memory->x.store(i, kRelaxed);
        });
        world.daemon(1, "survivor", [=, &seen] {
          check(await_death() == 0, "another rank died");
          seen.insert(memory->x.load(kSeqCst));
        });
      },
      {.stale = 0});
  EXPECT_TRUE(outcome.ok()) << outcome.failure;
  EXPECT_EQ(seen, (std::set<std::uint32_t>{0, 1, 2}));
}

}  // namespace
}  // namespace hccl::model
