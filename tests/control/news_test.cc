// News: the laws of merging on random news, and a flood through random trees.
#include "hccl/control/news.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <random>
#include <string>
#include <vector>

namespace hccl::control {
namespace {

constexpr std::uint32_t kNodes = 30;

std::string bytes_of(const News& news) {
  ByteWriter out;
  put(out, news);
  return out.take();
}
std::optional<News> read_news(std::string_view bytes, std::uint32_t nodes = kNodes) {
  ByteReader in(bytes);
  auto news = get_news(in, nodes);
  return in.finished() ? std::move(news) : std::nullopt;
}

News random_news(std::mt19937_64& random) {
  const auto node = [&] { return static_cast<std::uint32_t>(random() % kNodes); };
  News news;
  if (random() % 2 == 0) news.dead = {node(), node()};
  if (random() % 3 == 0) news.dead |= news.silent = {node()};
  if (random() % 3 == 0) news.left = {node()};
  if (random() % 4 == 0) news.summons = {Uuid{static_cast<std::uint8_t>(random() % 9)}};
  for (auto verdicts = random() % 3; verdicts > 0; --verdicts) {
    const Uuid scope{static_cast<std::uint8_t>(random() % 4)};
    const std::string text = random() % 2 == 0 ? "one" : "other";
    news.merge(Verdict{
        scope,
        static_cast<std::uint32_t>(1 + random() % 3),
        {random() % 4 == 0 ? Code::kMemory : Code::kRemote, text, static_cast<int>(random() % 3)}});
  }
  return news;
}

TEST(News, MergeInAnyOrder) {
  std::mt19937_64 random(1);
  for (int round = 0; round < 3000; ++round) {
    std::vector<News> parts(1 + random() % 12);
    for (News& each : parts) each = random_news(random);
    News sum;
    for (const News& each : parts) sum.merge(each);
    for (std::size_t again = random() % 4; again > 0; --again) {
      parts.push_back(parts[random() % parts.size()]);
    }
    std::ranges::shuffle(parts, random);
    while (parts.size() > 1) {
      const std::size_t at = random() % (parts.size() - 1);
      parts[at].merge(parts[at + 1]);
      parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(at) + 1);
    }
    ASSERT_EQ(bytes_of(parts.front()), bytes_of(sum)) << round;
    ASSERT_TRUE(sum.merge(parts.front()).empty()) << "nothing new";
  }
}

TEST(News, OfTwoVerdictsTheEarlierRootsCounts) {
  const Uuid scope{7};
  News news;
  EXPECT_TRUE(news.merge(Verdict{scope, 3, {Code::kRemote, "late", 1}}));
  EXPECT_FALSE(news.merge(Verdict{scope, 4, {Code::kRemote, "later", 0}}));
  EXPECT_TRUE(news.merge(Verdict{scope, 2, {Code::kRemote, "early", 2}}));
  ASSERT_EQ(news.verdicts.size(), 1u);
  EXPECT_EQ(news.verdicts.begin()->second.why.culprit(), 2);
  for (const int rank : {5, 6}) news.merge(Verdict{kEverything, 9, {Code::kRemote, "", rank}});
  EXPECT_EQ(news.verdicts.size(), 3u) << "each death is a verdict of its own";
}

// Each node passes on only news that it did not have. The flood ends, and all nodes have the same
// news.
TEST(News, FloodATree) {
  std::mt19937_64 random(2);
  for (int round = 0; round < 500; ++round) {
    const std::size_t size = 1 + random() % kNodes;
    std::vector<News> nodes(size);
    std::vector<std::vector<std::size_t>> neighbours(size);
    for (std::size_t node = 1; node < size; ++node) {
      const std::size_t parent = random() % node;
      neighbours[node].push_back(parent);
      neighbours[parent].push_back(node);
    }
    struct Frame {
      std::size_t from, to;
      News news;
    };
    std::deque<Frame> under_way;
    News all;
    for (int sources = 0; sources < 4; ++sources) {
      const std::size_t node = random() % size;
      under_way.push_back({size, node, random_news(random)});
      all.merge(under_way.back().news);
    }
    std::size_t frames = 0;
    while (!under_way.empty()) {
      ASSERT_LT(++frames, 10 * 8 * size + 10) << "the flood does not end";
      std::swap(under_way.front(), under_way[random() % under_way.size()]);
      const Frame frame = under_way.front();
      under_way.pop_front();
      const News fresh = nodes[frame.to].merge(*read_news(bytes_of(frame.news)));
      if (fresh.empty()) continue;
      for (const std::size_t next : neighbours[frame.to]) {
        if (next != frame.from) under_way.push_back({frame.to, next, fresh});
      }
    }
    for (const News& each : nodes) ASSERT_EQ(bytes_of(each), bytes_of(all)) << round;
  }
}

TEST(News, WrongBytesAreRefused) {
  std::mt19937_64 random(3);
  int taken = 0;
  for (int round = 0; round < 2000; ++round) {
    const News news = random_news(random);
    const std::string bytes = bytes_of(news);
    ASSERT_TRUE(read_news(bytes));
    ASSERT_EQ(bytes_of(*read_news(bytes)), bytes);
    for (std::size_t cut = 0; cut < bytes.size(); cut += 3) {
      ASSERT_FALSE(read_news(std::string_view(bytes).substr(0, cut)));
    }
    for (int changes = 0; changes < 20; ++changes) {
      std::string wrong = bytes;
      wrong[random() % wrong.size()] = static_cast<char>(random());
      const auto other = read_news(wrong);
      if (!other) continue;
      ++taken;
      const RankSet all = other->dead | other->left | other->silent;
      ASSERT_TRUE(RankSet::range(0, kNodes).contains(all));
      for (const auto& [key, verdict] : other->verdicts) {
        ASSERT_FALSE(verdict.why.ok());
        ASSERT_TRUE(key.first != kEverything || key.second >= 0);
      }
    }
  }
  EXPECT_GT(taken, 1000);
  News news;
  news.dead = {kNodes - 1};
  EXPECT_FALSE(read_news(bytes_of(news), kNodes - 1)) << "a node that is not there";
}

// Only some nodes know that a node that counts as dead may be alive. They tell the others.
TEST(News, SilenceIsNewsOfItsOwn) {
  News dead, silent;
  dead.dead = {3, 5};
  silent.dead = silent.silent = {5};
  EXPECT_FALSE(silent.empty());
  News known = dead;
  const News fresh = known.merge(silent);
  EXPECT_EQ(known.silent, RankSet{5});
  EXPECT_EQ(fresh.silent, RankSet{5});
  EXPECT_TRUE(fresh.dead.empty());
  EXPECT_FALSE(fresh.empty()) << "other nodes must hear it";
  EXPECT_TRUE(known.merge(silent).empty()) << "nothing new";
  const auto back = read_news(bytes_of(known));
  ASSERT_TRUE(back);
  EXPECT_EQ(back->dead, (RankSet{3, 5}));
  EXPECT_EQ(back->silent, RankSet{5});
  News beyond;
  beyond.silent = {kNodes};
  EXPECT_FALSE(read_news(bytes_of(beyond))) << "a node that is not there";
}

TEST(News, InTheOrderOfTheDecisions) {
  News news;
  news.merge(Verdict{{1}, 2, {Code::kRemote, "third", 1}, 0});
  news.merge(Verdict{{2}, 1, {Code::kRemote, "second", 1}, 7});
  news.merge(Verdict{{3}, 1, {Code::kRemote, "first", 1}, 3});
  std::vector<std::string> texts;
  for (const Verdict* each : news.in_order()) texts.push_back(each->why.message());
  EXPECT_EQ(texts, (std::vector<std::string>{"first", "second", "third"}));
}

TEST(News, DeathsStayWhenVerdictsOfCommunicatorsMakeRoom) {
  News news;
  news.merge(Verdict{kEverything, 1, {Code::kRemote, "died", 5}});
  for (std::uint32_t i = 1; i < 2 * kVerdictsCap; ++i) {
    news.merge(Verdict{{1, static_cast<std::uint8_t>(i), static_cast<std::uint8_t>(i >> 8),
                        static_cast<std::uint8_t>(i >> 16)},
                       1,
                       {Code::kMemory, "no memory"}});
  }
  EXPECT_LE(news.verdicts.size(), kVerdictsCap);
  EXPECT_EQ(news.verdicts.count({kEverything, 5}), 1u);
}

}  // namespace
}  // namespace hccl::control
