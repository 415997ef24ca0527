// Groups of the ranks of a world: an absent or dead member is named, and the survivors may form a
// group.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/join/join_parts.h"
#include "tests/support/processes.h"
#include "tests/support/world.h"

namespace hccl::testing {
namespace {

using std::chrono::seconds;

TEST(Groups, AbsentMemberIsNamed) {
  World world(3, config_of(kShort));
  ASSERT_TRUE(world.ok());
  world.run([](core::Communicator& communicator) {
    if (communicator.rank() == 1) return;
    const auto group = communicator.group("trio", {0, 1, 2}, 1);
    EXPECT_EQ(group.status().code(), Code::kTimeout);
    EXPECT_TRUE(has(group.status(), "trio: ranks that did not come: 1"))
        << group.status().message();
  });
}

TEST(Groups, SurvivorsMayFormAGroupButNotWithTheDead) {
  constexpr int kSize = 3;
  Processes processes;
  Board& board = processes.board();
  for (int r = 0; r < kSize; ++r) {
    processes.start([&, r] {
      const auto me = static_cast<std::size_t>(r);
      Member member;
      Status status = processes.enter(member, kSize, r, config_of(seconds(30)));
      ++board.progress[me];
      eventually([&] {
        return std::all_of(board.progress.begin(), board.progress.begin() + kSize,
                           [](const auto& count) { return count != 0; });
      });
      if (r == 1 || !status.ok()) return 0;  // rank 1 leaves without a call
      board.later[me].set(member.world->group("all", {0, 1, 2}, 1).status());
      auto pair = member.world->group("pair", {2, 0}, 1);
      std::vector<float> data(1000, 1.0F);
      status = pair.ok() ? (*pair)->operations().run(sum(data)) : pair.status();
      if (status.ok() && data != std::vector<float>(1000, 2.0F)) {
        status = Status(Code::kInternal, "a wrong sum");
      }
      board.first[me].set(status);
      if (pair.ok()) pair->reset();
      Processes::leave(member);
      return 0;
    });
  }
  for (const std::size_t r : {std::size_t{0}, std::size_t{2}}) {
    ASSERT_TRUE(eventually([&] { return board.first[r].known.load(); }));
    EXPECT_EQ(board.first[r].code, Code::kSuccess) << board.first[r].message();
    EXPECT_EQ(board.later[r].code, Code::kRemote) << board.later[r].message();
    EXPECT_EQ(board.later[r].culprit, 1);
  }
}

}  // namespace
}  // namespace hccl::testing
