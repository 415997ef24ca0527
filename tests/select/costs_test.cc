// The table behind HCCL_TUNE_FILE: both its forms, refused tables, look-ups, and the file.
#include "hccl/select/costs.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <random>

#include "hccl/files/codecs.h"
#include "hccl/select/cost_file.h"
#include "tests/support/folder.h"

namespace hccl::select {
namespace {

std::string to_binary(const CostTable& table) {
  return files::encode(&files::Codecs::costs, table, files::Form::kBinary).value();
}
std::string to_json(const CostTable& table) {
  return files::encode(&files::Codecs::costs, table, files::Form::kJson).value();
}
Result<CostTable> read(std::string_view bytes, files::Form form) {
  HCCL_ASSIGN_OR_RETURN(CostTable table, files::decode(&files::Codecs::costs, bytes, form));
  HCCL_RETURN_IF_ERROR(table.check());
  return table;
}
Result<CostTable> from_binary(std::string_view bytes) { return read(bytes, files::Form::kBinary); }
Result<CostTable> from_json(std::string_view text) { return read(text, files::Form::kJson); }

CostKey key(std::uint32_t ranks, std::uint32_t hosts = 1) {
  return {"0.1.0", "Some CPU with 2 cores", "tcp", hosts, ranks, ranks > 2};
}

CostEntry messages(const CostKey& key, std::uint64_t step_ns = 1000) {
  CostEntry entry;
  entry.key = key;
  entry.messages.emplace();
  entry.messages->steps = {{64, step_ns, 10}, {4 << 20, std::uint64_t{5'000'000'000}, 20}};
  entry.messages->fold_ns_per_mib = 77;
  return entry;
}

CostEntry host(const CostKey& key) {
  CostEntry entry;
  entry.key = key;
  entry.local.emplace();
  entry.local->tuning = {262144, 4096};
  entry.local->curves = {{"staged", CurveKind::kFold, {{1024, 111}, {65536, 9999}}},
                         {"push", CurveKind::kMove, {{2048, 222}}}};
  return entry;
}

std::string replaced(std::string text, const std::string& what, const std::string& by) {
  const auto at = text.find(what);
  EXPECT_NE(at, std::string::npos) << what << " is not in " << text;
  return at == std::string::npos ? text : text.replace(at, what.size(), by);
}

TEST(CostTable, ComesBackAsItWas) {
  CostTable tuning;
  tuning.put(messages(key(4)));
  tuning.put(host(key(2)));
  for (const auto& back : {from_binary(to_binary(tuning)), from_json(to_json(tuning))}) {
    ASSERT_TRUE(back.ok()) << back.status().message();
    EXPECT_EQ(*back, tuning);
  }
}

TEST(CostTable, WhatIsNotATableIsRefused) {
  for (const std::string& bytes :
       {std::string("hello"), std::string(1000, '\xff'), std::string("{}"), std::string("[1, 2]"),
        std::string("{\"version\": \"x\"}")}) {
    EXPECT_FALSE(from_binary(bytes).ok()) << bytes;
    EXPECT_FALSE(from_json(bytes).ok()) << bytes;
  }
  CostTable tuning;
  tuning.put(messages(key(4)));
  tuning.put(host(key(2)));
  const std::string good = to_json(tuning);
  const auto code = [&](const std::string& what, const std::string& by) {
    return from_json(replaced(good, what, by)).status().code();
  };
  EXPECT_EQ(code("\"version\": 2", "\"version\": 3"), Code::kNotSupport);
  EXPECT_EQ(code("\"version\": 2", "\"version\": 0"), Code::kPara);
  EXPECT_EQ(code("\"hosts\": 1", "\"hosts\": 0"), Code::kPara);
  EXPECT_EQ(code("\"step_ns\": \"1000\"", "\"step_ns\": \"0\""), Code::kPara);
  EXPECT_EQ(code("\"bytes\": \"64\"", "\"bytes\": \"99999999\""), Code::kPara);
  // With such sizes, ranks would write past the end of the staging buffers.
  EXPECT_EQ(code("\"chunk\": \"262144\"", "\"chunk\": \"26214400\""), Code::kPara);
  EXPECT_EQ(code("\"chunk\": \"262144\"", "\"chunk\": \"0\""), Code::kPara);
  EXPECT_EQ(code("\"ns\": \"111\"", "\"ns\": \"0\""), Code::kPara);
  EXPECT_EQ(code("\"ns\": \"111\"", "\"ns\": \"11111\""), Code::kPara);  // times must not fall
  EXPECT_EQ(code("\"bytes\": \"1024\"", "\"bytes\": \"65536\""), Code::kPara);
  EXPECT_EQ(code("\"algorithm\": \"staged\"", "\"algorithm\": \"\""), Code::kPara);
  // Fields of a later version are ignored.
  EXPECT_EQ(code("\"version\": 2", "\"version\": 2, \"later\": 5"), Code::kSuccess);
  EXPECT_EQ(code("\"move\"", "\"a kind to come\""), Code::kSuccess);
}

// Rank 0 sends the contents of a file to the other ranks, so any bytes may arrive.
TEST(CostTable, NoBytesDoHarm) {
  CostTable tuning;
  tuning.put(messages(key(4)));
  tuning.put(host(key(2)));
  std::mt19937 random(1);
  const std::string good = to_binary(tuning);
  for (int round = 0; round < 20000; ++round) {
    std::string bytes = good.substr(0, random() % 4 == 0 ? random() % good.size() : good.size());
    for (unsigned change = random() % 4; change > 0 && !bytes.empty(); --change) {
      bytes[random() % bytes.size()] = static_cast<char>(random());
    }
    const auto table = from_binary(bytes);
    if (table.ok()) {
      EXPECT_TRUE(table->check().ok());
    }
  }
}

TEST(CostTable, FindsItsKeyAndTheNearest) {
  CostTable tuning;
  EXPECT_EQ(tuning.find(key(4)), nullptr);
  EXPECT_EQ(tuning.nearest(key(4)), nullptr);
  tuning.put(messages(key(4)));
  tuning.put(messages(key(16)));
  tuning.put(messages(key(4, 2)));
  tuning.put(host(key(3)));
  EXPECT_EQ(tuning.find(key(4))->key, key(4));
  EXPECT_EQ(tuning.find(key(8)), nullptr);
  EXPECT_EQ(tuning.nearest(key(3))->key, key(4));  // the entry of 3 ranks has no costs of messages
  EXPECT_EQ(tuning.nearest(key(12))->key, key(16));
  EXPECT_EQ(tuning.nearest(key(4, 3))->key, key(4, 2));
  for (auto member : {&CostKey::library, &CostKey::cpu, &CostKey::transport}) {
    CostKey other = key(4);
    other.*member = "another";
    EXPECT_EQ(tuning.find(other), nullptr);
    EXPECT_EQ(tuning.nearest(other), nullptr);
  }
  CostKey other = key(4);
  other.kernel_copies = true;
  EXPECT_EQ(tuning.find(other), nullptr);
  EXPECT_EQ(tuning.nearest(other)->key, key(4));
  // A key has only one entry, the newest.
  tuning.put(messages(key(4), 2000));
  EXPECT_EQ(tuning.entries.size(), 4u);
  EXPECT_EQ(tuning.find(key(4))->messages->steps[0].step_ns, 2000u);
}

TEST(Curve, GoesInStraightLines) {
  const Curve curve{"staged", CurveKind::kFold, {{1000, 100}, {2000, 300}, {4000, 400}}};
  EXPECT_EQ(curve.ns(0), 100);
  EXPECT_EQ(curve.ns(1500), 200);
  EXPECT_EQ(curve.ns(4000), 400);
  EXPECT_EQ(curve.ns(8000), 600);
}

// A measurement moves its own curve at its size; the other curves move by the mean.
TEST(Fit, MovesCurvesByWhatWasMeasured) {
  LocalCosts base;
  base.curves = {{"a", CurveKind::kFold, {{64, 100}, {1 << 20, 1000}}},
                 {"b", CurveKind::kFold, {{64, 200}, {1 << 20, 2000}}}};
  const LocalCosts same = fit(base, base, {});
  EXPECT_EQ(same, base);
  const LocalCosts fitted =
      fit(base, base, {{"a", CurveKind::kFold, {{64, 200}, {1 << 20, 8000}}}});
  EXPECT_EQ(fitted.find("a", CurveKind::kFold)->points[0].ns, 200u);
  EXPECT_EQ(fitted.find("a", CurveKind::kFold)->points[1].ns, 8000u);
  EXPECT_EQ(fitted.find("b", CurveKind::kFold)->points[0].ns, 800u);  // by 4, the mean of 2 and 8
  EXPECT_EQ(fitted.find("b", CurveKind::kFold)->points[1].ns, 8000u);
}

// A group uses its parent's measurements: each measured curve keeps its ratio to `staged`.
TEST(Fit, AddsMeasuredCurvesThatWereNotKnown) {
  LocalCosts reference;
  reference.curves = {{"staged", CurveKind::kFold, {{64, 100}, {1 << 20, 1000}}}};
  LocalCosts base;
  base.curves = {{"staged", CurveKind::kFold, {{64, 50}, {1 << 20, 500}}}};
  const LocalCosts fitted = fit(base, reference,
                                {{"staged", CurveKind::kFold, {{64, 200}, {1 << 20, 2000}}},
                                 {"new", CurveKind::kFold, {{64, 100}, {1 << 20, 4000}}},
                                 {"new", CurveKind::kMove, {{64, 100}}}});
  EXPECT_EQ(fitted.curves.size(), 2u);
  EXPECT_EQ(*fitted.find("staged", CurveKind::kFold),
            (Curve{"staged", CurveKind::kFold, {{64, 100}, {1 << 20, 1000}}}));
  EXPECT_EQ(*fitted.find("new", CurveKind::kFold),
            (Curve{"new", CurveKind::kFold, {{64, 50}, {1 << 20, 2000}}}));
}

TEST(CostTable, OldEntriesGiveWay) {
  CostTable tuning;
  for (std::uint32_t ranks = 1; ranks <= CostTable::kMostEntries + 10; ++ranks) {
    tuning.put(messages(key(ranks)));
  }
  EXPECT_EQ(tuning.entries.size(), CostTable::kMostEntries);
  EXPECT_EQ(tuning.find(key(10)), nullptr);
  EXPECT_NE(tuning.find(key(11)), nullptr);
  EXPECT_TRUE(from_binary(to_binary(tuning)).ok());
}

class CostFile : public ::testing::Test {
 protected:
  hccl::testing::Folder folder_;
};

TEST_F(CostFile, IsMadeAndAddedTo) {
  for (const std::string name : {"table", "table.json"}) {
    const auto none = read_costs(folder_ / name);
    ASSERT_TRUE(none.ok());
    EXPECT_FALSE(none->has_value());
    ASSERT_TRUE(keep_costs(folder_ / name, messages(key(4))).ok());
    ASSERT_TRUE(keep_costs(folder_ / name, host(key(2))).ok());
    const auto both = read_costs(folder_ / name);
    ASSERT_TRUE(both.ok() && both->has_value());
    EXPECT_EQ((*both)->entries.size(), 2u);
    EXPECT_EQ(*(*both)->find(key(4)), messages(key(4)));
    EXPECT_EQ(*(*both)->find(key(2)), host(key(2)));
    struct stat info = {};
    ASSERT_EQ(::stat((folder_ / name).c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 0777, 0644u);
  }
  EXPECT_EQ(folder_.read("table.json").front(), '{');
  EXPECT_NE(folder_.read("table").front(), '{');
  // No other file is left.
  EXPECT_EQ(folder_.files(), (std::vector<std::string>{"table", "table.json"}));
}

TEST_F(CostFile, AnEmptyOneIsAsGoodAsNone) {
  folder_.write("made_by_mktemp", "");
  EXPECT_FALSE(read_costs(folder_ / "made_by_mktemp").value().has_value());
  EXPECT_TRUE(keep_costs(folder_ / "made_by_mktemp", host(key(2))).ok());
}

TEST_F(CostFile, WhatIsSomethingElseStaysAsItIs) {
  folder_.write("letter", "Dear all, this is no table.");
  folder_.write("letter.json", "{\"to\": \"all\"}");
  for (const std::string name : {"letter", "letter.json"}) {
    const std::string before = folder_.read(name);
    for (const Status& status :
         {read_costs(folder_ / name).status(), keep_costs(folder_ / name, host(key(2)))}) {
      EXPECT_EQ(status.code(), Code::kPara);
      EXPECT_NE(status.message().find(folder_ / name), std::string::npos) << status.message();
    }
    EXPECT_EQ(folder_.read(name), before);
  }
  EXPECT_EQ(read_costs(folder_.path()).status().code(), Code::kOpenFileFailure);
  EXPECT_EQ(keep_costs(folder_ / "no/such/folder", host(key(2))).code(), Code::kOpenFileFailure);
  ASSERT_EQ(::mkfifo((folder_ / "pipe").c_str(), 0600), 0);
  EXPECT_EQ(read_costs(folder_ / "pipe").status().code(), Code::kOpenFileFailure);
}

}  // namespace
}  // namespace hccl::select
