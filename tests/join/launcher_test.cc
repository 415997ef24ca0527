// Launchers: the meaning of their variables, which launcher counts, and every value that is
// refused.
#include "hccl/join/launcher.h"

#include <gtest/gtest.h>

#include <map>

#include "hccl/join/hostlist.h"

namespace hccl::join {
namespace {

using Variables = std::map<std::string, std::string>;

Result<Launch> detect(const Variables& variables, std::uint16_t base_port = 60000,
                      const std::vector<Process>& line = {}) {
  const auto get = [&](const char* name) {
    const auto at = variables.find(name);
    return at == variables.end() ? nullptr : at->second.c_str();
  };
  return detect_launcher(base_port, get, line);
}

// Detects the launcher of a process with the variables `own`. The variables of its ancestors
// follow, the nearest first.
Result<Launch> detect_in(const Variables& own, const std::vector<Variables>& ancestors) {
  std::vector<Process> line = {{.pid = 100, .started = 9}};
  line[0].variables.insert(own.begin(), own.end());
  for (const Variables& each : ancestors) {
    line.push_back({.pid = static_cast<pid_t>(100 - line.size()), .started = 8});
    line.back().variables.insert(each.begin(), each.end());
  }
  return detect(own, 60000, line);
}

Variables with(Variables variables, const std::string& name, const std::string& value) {
  variables[name] = value;
  return variables;
}

Variables without(Variables variables, const std::string& name) {
  EXPECT_EQ(variables.erase(name), 1u) << name;
  return variables;
}

Variables joined(Variables a, const Variables& b) {
  a.insert(b.begin(), b.end());
  return a;
}

const Variables kTable = {{"RANK_TABLE_FILE", "/etc/hccl.json"}, {"RANK_ID", "pod-3"}};
const Variables kMpirun = {{"PMIX_RANK", "5"},
                           {"PMIX_NAMESPACE", "1090650113"},
                           {"OMPI_COMM_WORLD_RANK", "5"},
                           {"OMPI_COMM_WORLD_SIZE", "8"},
                           {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                           {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"}};
const Variables kTorch = {{"RANK", "3"},
                          {"WORLD_SIZE", "4"},
                          {"LOCAL_RANK", "1"},
                          {"LOCAL_WORLD_SIZE", "2"},
                          {"MASTER_ADDR", "node0.example"},
                          {"MASTER_PORT", "29500"},
                          {"TORCHELASTIC_RUN_ID", "run7"}};
const Variables kHydra = {{"PMI_RANK", "1"},
                          {"PMI_SIZE", "2"},
                          {"PMI_FD", "6"},
                          {"MPI_LOCALNRANKS", "2"},
                          {"MPI_LOCALRANKID", "1"}};
const Variables kSrun = {{"SLURM_PROCID", "6"},        {"SLURM_STEP_NUM_TASKS", "7"},
                         {"SLURM_NTASKS", "9"},        {"SLURM_JOB_ID", "4711"},
                         {"SLURM_STEP_ID", "2"},       {"SLURM_STEP_NODELIST", "node[03-05,9],x1"},
                         {"SLURM_NODELIST", "head"},   {"SLURM_LOCALID", "0"},
                         {"SLURM_NODEID", "3"},        {"SLURM_STEP_TASKS_PER_NODE", "2(x3),1"},
                         {"SLURM_TASKS_PER_NODE", "9"}};

void expect(const Result<Launch>& launch, LauncherKind kind, int rank, int size, int local_rank,
            int local_size, const std::string& address, std::uint16_t port) {
  ASSERT_TRUE(launch.ok()) << launch.status().message();
  const Launch& l = launch.value();
  EXPECT_EQ(l.kind, kind);
  EXPECT_EQ(l.rank, rank);
  EXPECT_EQ(l.size, size);
  EXPECT_EQ(l.local_rank, local_rank);
  EXPECT_EQ(l.local_size, local_size);
  EXPECT_EQ(l.root_address, address);
  EXPECT_EQ(l.root_port, port);
}

TEST(Launcher, Alone) {
  expect(detect({}), LauncherKind::kAlone, 0, 1, 0, 1, "", 0);
  // No launcher: variables that job scripts export, that batch scripts have, or that HCCL calls
  // "not set".
  expect(detect({{"MASTER_ADDR", "h"}, {"MASTER_PORT", "1"}, {"WORLD_SIZE", "4"}}),
         LauncherKind::kAlone, 0, 1, 0, 1, "", 0);
  expect(detect(without(kSrun, "SLURM_STEP_ID")), LauncherKind::kAlone, 0, 1, 0, 1, "", 0);
  expect(detect({{"RANK_TABLE_FILE", "EmptyString"}, {"RANK", ""}}), LauncherKind::kAlone, 0, 1, 0,
         1, "", 0);
}

TEST(Launcher, RankTable) {
  const auto launch = detect(kTable);
  expect(launch, LauncherKind::kRankTable, -1, 0, -1, 0, "", 0);
  EXPECT_EQ(launch.value().rank_table_path, "/etc/hccl.json");
  EXPECT_EQ(launch.value().identify, "pod-3");
}

TEST(Launcher, Pmix) {
  const auto launch = detect(kMpirun);
  expect(launch, LauncherKind::kPmix, 5, 8, 1, 4, "", 0);
  EXPECT_EQ(launch.value().job, "pmix 1090650113");
  expect(detect({{"PMIX_RANK", "5"}, {"PMIX_NAMESPACE", "x"}}), LauncherKind::kPmix, 5, 0, -1, 0,
         "", 0);
}

TEST(Launcher, Torchrun) {
  const auto launch = detect(kTorch);
  expect(launch, LauncherKind::kTorchrun, 3, 4, 1, 2, "node0.example", 29501);
  auto minimal =
      without(without(without(kTorch, "LOCAL_RANK"), "LOCAL_WORLD_SIZE"), "TORCHELASTIC_RUN_ID");
  expect(detect(minimal), LauncherKind::kTorchrun, 3, 4, -1, 0, "node0.example", 29501);
  expect(detect(with(minimal, "MASTER_PORT", "65534")), LauncherKind::kTorchrun, 3, 4, -1, 0,
         "node0.example", 65535);
  // All ranks of a job derive the same job name; other jobs have other names.
  EXPECT_EQ(launch.value().job, detect(with(kTorch, "RANK", "0")).value().job);
  EXPECT_NE(launch.value().job, detect(with(kTorch, "TORCHELASTIC_RUN_ID", "r")).value().job);
  EXPECT_NE(launch.value().job, detect(with(kTorch, "MASTER_PORT", "29501")).value().job);
  // Agents count their restarts separately, so the job name contains the count only if there is one
  // agent.
  EXPECT_EQ(launch.value().attempt.agent, 0u);
  const auto restarted = with(with(kTorch, "TORCHELASTIC_RESTART_COUNT", "3"), "GROUP_RANK", "1");
  const auto again = detect(restarted).value();
  EXPECT_EQ(again.attempt.number, 3u);
  // An agent's number stays the same in a restart, even if the port changes. Ranks of several jobs
  // may meet by root info, so agents of different jobs have different numbers.
  const auto agent = [&](auto variables) { return detect(variables).value().attempt.agent; };
  const auto port = with(restarted, "MASTER_PORT", "29777");
  EXPECT_NE(again.attempt.agent, 0u);
  EXPECT_EQ(agent(port), again.attempt.agent);
  EXPECT_EQ(agent(with(restarted, "TORCHELASTIC_RESTART_COUNT", "4")), again.attempt.agent);
  EXPECT_NE(agent(with(restarted, "GROUP_RANK", "0")), again.attempt.agent);
  EXPECT_NE(agent(with(restarted, "TORCHELASTIC_RUN_ID", "r")), again.attempt.agent);
  EXPECT_EQ(again.job, launch.value().job);
  const auto one_agent = with(restarted, "LOCAL_WORLD_SIZE", restarted.at("WORLD_SIZE"));
  EXPECT_NE(detect(one_agent).value().job,
            detect(with(one_agent, "TORCHELASTIC_RESTART_COUNT", "2")).value().job);
}

TEST(Launcher, Slurm) {
  const auto launch = detect(kSrun);
  ASSERT_TRUE(launch.ok()) << launch.status().message();
  expect(launch, LauncherKind::kSlurm, 6, 7, 0, 1, "node03", launch.value().root_port);
  EXPECT_EQ(launch.value().job, "slurm 4711.2");
  EXPECT_NE(detect(with(kSrun, "SLURM_RESTART_COUNT", "1")).value().job, launch.value().job);
  auto few = kSrun;
  for (const char* name : {"SLURM_STEP_NUM_TASKS", "SLURM_STEP_NODELIST", "SLURM_LOCALID",
                           "SLURM_NODEID", "SLURM_STEP_TASKS_PER_NODE"}) {
    few = without(few, name);
  }
  expect(detect(few), LauncherKind::kSlurm, 6, 9, -1, 0, "head", launch.value().root_port);
}

TEST(Launcher, SlurmPortsStayInRangeAndApart) {
  std::map<int, int> used;
  for (int job = 1000; job < 1010; ++job) {
    for (int step = 0; step < 4; ++step) {
      const auto launch = detect(with(with(kSrun, "SLURM_JOB_ID", std::to_string(job)),
                                      "SLURM_STEP_ID", std::to_string(step)));
      ++used[launch.value().root_port];
    }
  }
  EXPECT_EQ(used.size(), 40u);
  EXPECT_GE(used.begin()->first, 60000);
  for (const std::uint16_t base : {1024, 60000, 65503, 65504, 65505, 65520}) {
    for (const char* job : {"0", "1", "170", "4294967295"}) {
      const auto launch = detect(with(kSrun, "SLURM_JOB_ID", job), base);
      ASSERT_TRUE(launch.ok());
      EXPECT_GE(launch.value().root_port, base);
    }
  }
}

TEST(Launcher, Hydra) {
  const auto launch = detect_in(kHydra, {kHydra, {}, {}});
  expect(launch, LauncherKind::kHydra, 1, 2, 1, 2, "127.0.0.1", 60000);
  // The job is named after the proxy, which is the same for all ranks.
  EXPECT_EQ(launch.value().job, "hydra 98.8");
  EXPECT_EQ(detect_in(with(kHydra, "PMI_RANK", "0"), {with(kHydra, "PMI_RANK", "0"), {}})->job,
            "hydra 98.8");
  const Variables one = {{"PMI_RANK", "0"}, {"PMI_SIZE", "1"}, {"MPI_LOCALNRANKS", "1"}};
  expect(detect(one), LauncherKind::kAlone, 0, 1, 0, 1, "", 0);
  // Refused: ranks on several hosts, a proxy that cannot be seen, and no number of ranks on this
  // host.
  for (const auto& refused :
       {detect_in(with(with(kHydra, "PMI_SIZE", "4"), "PMI_RANK", "3"), {{}}), detect(kHydra),
        detect_in(without(kHydra, "MPI_LOCALNRANKS"), {{}})}) {
    EXPECT_EQ(refused.status().code(), Code::kNotSupport);
    EXPECT_NE(refused.status().message().find("RANK=$PMI_RANK"), std::string::npos)
        << refused.status().message();
  }
}

TEST(Launcher, TheInnermostCounts) {
  const Variables outer = with(kMpirun, "PMIX_RANK", "0");
  const auto kind = [](const Variables& own, const std::vector<Variables>& ancestors) {
    const auto launch = detect_in(own, ancestors);
    return launch.ok() ? launch->kind : LauncherKind::kAlone;
  };
  const Variables both = joined(kMpirun, kTorch);
  // torchrun inside mpirun, with a shell in between; mpirun inside torchrun.
  EXPECT_EQ(kind(both, {both, kMpirun, {}}), LauncherKind::kTorchrun);
  EXPECT_EQ(kind(both, {both, kTorch, {}}), LauncherKind::kPmix);
  // The inner launcher runs under a launcher of its own kind, with variables of that kind.
  EXPECT_EQ(kind(both, {joined(kMpirun, with(kTorch, "RANK", "0")), kTorch, {}}),
            LauncherKind::kTorchrun);
  EXPECT_EQ(kind(both, {joined(outer, kTorch), kTorch, {}}), LauncherKind::kPmix);
  EXPECT_EQ(kind(joined(kTable, both), {both, kMpirun}), LauncherKind::kRankTable);
  EXPECT_EQ(kind(joined(kTable, both), {joined(kTable, kMpirun), kTable}), LauncherKind::kTorchrun);
  EXPECT_EQ(kind(joined(kHydra, kTorch), {kTorch}), LauncherKind::kHydra);
  // The program has set the variables itself.
  std::vector<Process> line = {{.pid = 100}, {.pid = 99}};
  line[0].variables.insert(kMpirun.begin(), kMpirun.end());
  EXPECT_EQ(detect(both, 60000, line)->kind, LauncherKind::kTorchrun);
}

TEST(Launcher, TwoThatDoNotAgreeAreRefused) {
  const Variables both = joined(kMpirun, kTorch);
  const auto launch = detect_in(both, {both, {}});
  EXPECT_EQ(launch.status().code(), Code::kPara);
  for (const char* words : {"PMIX_RANK says rank 5 of 8", "RANK says rank 3 of 4"}) {
    EXPECT_NE(launch.status().message().find(words), std::string::npos)
        << launch.status().message();
  }
  EXPECT_FALSE(detect_in(joined(with(kTable, "RANK_ID", "4"), kMpirun), {{}}).ok());
  // In a container no ancestor shows the launchers.
  EXPECT_EQ(detect_in(both, {both, both})->kind, LauncherKind::kPmix);
  EXPECT_EQ(detect(both)->kind, LauncherKind::kPmix);
  // A script may copy one launcher's values into the other's variables.
  const Variables same = with(with(kTorch, "RANK", "5"), "WORLD_SIZE", "8");
  const auto kind = [](const Variables& own) { return detect_in(own, {{}})->kind; };
  EXPECT_EQ(kind(joined(kMpirun, same)), LauncherKind::kPmix);
  EXPECT_EQ(kind(joined(with(kTable, "RANK_ID", "5"), kMpirun)), LauncherKind::kRankTable);
  EXPECT_EQ(kind(joined(kTable, kMpirun)), LauncherKind::kRankTable) << "an id of another kind";
  EXPECT_EQ(
      kind(joined(with(with(kSrun, "SLURM_PROCID", "3"), "SLURM_STEP_NUM_TASKS", "4"), kTorch)),
      LauncherKind::kTorchrun);
}

TEST(Launcher, OneOfSeveralIsNoWorldOfOne) {
  for (const auto& [rank, size] : Variables{{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
                                            {"MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE"},
                                            {"FLUX_TASK_RANK", "FLUX_JOB_SIZE"},
                                            {"HOROVOD_RANK", "HOROVOD_SIZE"},
                                            {"LOCAL_RANK", "WORLD_SIZE"},
                                            {"RANK_ID", "RANK_SIZE"}}) {
    for (const Variables& several : {Variables{{rank, "0"}}, Variables{{rank, "1"}, {size, "2"}}}) {
      const auto launch = detect(several);
      EXPECT_EQ(launch.status().code(), Code::kNotSupport) << rank;
      EXPECT_NE(launch.status().message().find(rank + "="), std::string::npos);
    }
    EXPECT_EQ(detect({{rank, "0"}, {size, "1"}})->kind, LauncherKind::kAlone) << rank;
  }
}

TEST(Launcher, RefusesBadValues) {
  const struct {
    Variables variables;
    const char* named;
  } cases[] = {
      {without(kTable, "RANK_ID"), "RANK_ID"},
      {with(kTable, "RANK_ID", ""), "RANK_ID"},
      {with(kTable, "CM_CHIEF_IP", "10.0.0.1"), "CM_CHIEF_IP"},
      {without(kMpirun, "PMIX_NAMESPACE"), "PMIX_NAMESPACE"},
      {without(kMpirun, "PMIX_RANK"), "PMIX_RANK"},
      {with(kMpirun, "PMIX_RANK", "x"), "PMIX_RANK"},
      {with(kMpirun, "PMIX_RANK", "4"), "OMPI_COMM_WORLD_RANK"},
      {without(kMpirun, "OMPI_COMM_WORLD_RANK"), "OMPI_COMM_WORLD_RANK"},
      {without(kMpirun, "OMPI_COMM_WORLD_SIZE"), "OMPI_COMM_WORLD_SIZE"},
      {with(kMpirun, "OMPI_COMM_WORLD_SIZE", "5"), "OMPI_COMM_WORLD_RANK"},
      {with(kMpirun, "OMPI_COMM_WORLD_SIZE", "0"), "OMPI_COMM_WORLD_SIZE"},
      {with(kMpirun, "OMPI_COMM_WORLD_LOCAL_RANK", "4"), "OMPI_COMM_WORLD_LOCAL_RANK"},
      {with(kMpirun, "OMPI_COMM_WORLD_LOCAL_SIZE", "9"), "OMPI_COMM_WORLD_LOCAL_SIZE"},
      {with(kTorch, "RANK", "4"), "RANK"},
      {with(kTorch, "RANK", "-1"), "RANK"},
      {with(kTorch, "RANK", "1.5"), "RANK"},
      {with(kTorch, "RANK", " 1"), "RANK"},
      {without(kTorch, "WORLD_SIZE"), "WORLD_SIZE"},
      {with(kTorch, "WORLD_SIZE", "99999999999999999999"), "WORLD_SIZE"},
      {with(kTorch, "LOCAL_RANK", "2"), "LOCAL_RANK"},
      {with(kTorch, "LOCAL_WORLD_SIZE", "5"), "LOCAL_WORLD_SIZE"},
      {without(kTorch, "MASTER_ADDR"), "MASTER_ADDR"},
      {without(kTorch, "MASTER_PORT"), "MASTER_PORT"},
      {with(kTorch, "MASTER_PORT", "0"), "MASTER_PORT"},
      {with(kTorch, "MASTER_PORT", "65535"), "MASTER_PORT"},
      {with(kSrun, "SLURM_PROCID", "7"), "SLURM_PROCID"},
      {with(kSrun, "SLURM_STEP_NUM_TASKS", "0"), "SLURM_STEP_NUM_TASKS"},
      {without(without(kSrun, "SLURM_STEP_NUM_TASKS"), "SLURM_NTASKS"), "SLURM_NTASKS"},
      {without(kSrun, "SLURM_JOB_ID"), "SLURM_JOB_ID"},
      {with(kSrun, "SLURM_JOB_ID", "4711_1"), "SLURM_JOB_ID"},
      {with(kSrun, "SLURM_STEP_ID", "batch"), "SLURM_STEP_ID"},
      {without(without(kSrun, "SLURM_STEP_NODELIST"), "SLURM_NODELIST"), "SLURM_NODELIST"},
      {with(kSrun, "SLURM_STEP_NODELIST", "node[3-"), "SLURM_STEP_NODELIST"},
      {with(kSrun, "SLURM_STEP_TASKS_PER_NODE", "2(x2),1"), "SLURM_STEP_TASKS_PER_NODE"},
      {with(kSrun, "SLURM_STEP_TASKS_PER_NODE", "2(x3),8"), "SLURM_STEP_TASKS_PER_NODE"},
      {with(kSrun, "SLURM_STEP_TASKS_PER_NODE", "many"), "SLURM_STEP_TASKS_PER_NODE"},
      {with(kSrun, "SLURM_LOCALID", "1"), "SLURM_LOCALID"},
      {with(kSrun, "SLURM_NODEID", "x"), "SLURM_NODEID"},
      {with(kHydra, "PMI_RANK", "2"), "PMI_RANK"},
      {without(kHydra, "PMI_SIZE"), "PMI_SIZE"},
  };
  for (const auto& c : cases) {
    const auto launch = detect(c.variables);
    ASSERT_FALSE(launch.ok()) << c.named;
    EXPECT_EQ(launch.status().code(), Code::kPara);
    const std::string expected = std::string("environment variable ") + c.named + " ";
    EXPECT_NE(launch.status().message().find(expected), std::string::npos)
        << c.named << " is not in: " << launch.status().message();
  }
}

TEST(Launcher, ChiefStartIsNotSupported) {
  const auto launch = detect({{"CM_CHIEF_IP", "10.0.0.1"}, {"CM_WORKER_SIZE", "8"}});
  EXPECT_EQ(launch.status().code(), Code::kNotSupport);
  EXPECT_NE(launch.status().message().find("CM_CHIEF_IP"), std::string::npos);
}

TEST(Hostlist, Expands) {
  using List = std::vector<std::string>;
  const struct {
    const char* text;
    List hosts;
  } cases[] = {
      {"a", {"a"}},
      {"a,b-1.example,c_2", {"a", "b-1.example", "c_2"}},
      {"node[03-05,9],x1", {"node03", "node04", "node05", "node9", "x1"}},
      {"n[8-11]", {"n8", "n9", "n10", "n11"}},
      {"n[098-101]", {"n098", "n099", "n100", "n101"}},
      {"r[1-2]n[3,5]-ib", {"r1n3-ib", "r1n5-ib", "r2n3-ib", "r2n5-ib"}},
      {"[1-2]", {"1", "2"}},
      {"n[7]", {"n7"}},
  };
  for (const auto& c : cases) {
    const auto hosts = expand_hostlist(c.text);
    ASSERT_TRUE(hosts.ok()) << c.text;
    EXPECT_EQ(hosts.value(), c.hosts) << c.text;
  }
  EXPECT_EQ(expand_hostlist("n[0-65535]").value().size(), 65536u);
}

TEST(Hostlist, RefusesWhatIsNone) {
  const std::vector<std::string> wrong = {
      "",      ",",      "a,",    ",a",   "a,,b",   "n[",    "n]",       "n[]", "n[1", "n[1-]",
      "n[-1]", "n[3-1]", "n[1,]", "n[a]", "n[[1]]", "n[1]]", "n[1-2-3]", "a b", "a;b", "a/b"};
  const std::vector<std::string> too_many = {
      "n[0-65536]",    "n[0-999999999]", "n[1-300]m[1-300]",   "n[0-65535]m[0-65535]",
      "n[4294967297]", "n[0-65535],x",   std::string(256, 'n')};
  for (const auto& texts : {wrong, too_many}) {
    for (const std::string& text : texts) {
      EXPECT_EQ(expand_hostlist(text).status().code(), Code::kPara) << text;
    }
  }
}

TEST(Counts, Expands) {
  EXPECT_EQ(expand_counts("2(x3),1").value(), (std::vector<int>{2, 2, 2, 1}));
  EXPECT_EQ(expand_counts("4").value(), (std::vector<int>{4}));
  EXPECT_EQ(expand_counts("1,2(x2)").value(), (std::vector<int>{1, 2, 2}));
  for (const char* text : {"", ",", "2,", "x", "2(x)", "2(x0)", "(x3)", "2(3)", "2(x3", "-1",
                           "1(x65537)", "1(x4294967295)", "1(x65536),1", "2(x3)1"}) {
    EXPECT_EQ(expand_counts(text).status().code(), Code::kPara) << text;
  }
}

}  // namespace
}  // namespace hccl::join
