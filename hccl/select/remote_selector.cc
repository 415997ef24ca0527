// Fixed rules choose if nothing was measured. The rules cover effects that the costs of single
// messages do not show, such as senders that share a network interface, or ranks that share cores.
#include "hccl/select/remote_selector.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>

#include "hccl/schedule/ranks.h"

namespace hccl::select {
namespace {

using schedule::Algorithm;
using schedule::Choice;
using schedule::find;
using schedule::is_power_of_two;

/// Up to this size the latency dominates the cost of a message.
constexpr std::size_t kSmallBytes = 16 * kKiB;
/// Up to this many ranks, all may exchange with all at any size: two steps, and folds in rank
/// order.
constexpr int kFewRanks = 8;
/// Up to this many ranks, all may exchange with all if messages are small.
constexpr int kManyRanks = 32;
/// Up to this size, two ranks exchange their whole vectors. That takes half of the steps that
/// halving the vector takes, and moves as many bytes. Beyond this size, the data collected for the
/// fold no longer stays in a cache. Between hosts the limit is kDistantPairBytes, because there the
/// saved latency is worth more than the cache.
constexpr std::size_t kPairBytes = 512 * kKiB;
constexpr std::size_t kDistantPairBytes = std::size_t{1} << 20;
/// On one host, if the vectors of all ranks have at most this size together, the algorithm with the
/// fewest messages wins although its messages are longer, because the same processors pay for all
/// messages.
constexpr std::size_t kFewMessagesBytes = 256 * kKiB;
/// For vectors of more than kAllOnHostBytes on one host: with at most this many ranks, every rank
/// exchanges with every other rank.
constexpr int kFewOnHost = 4;
/// Up to this vector size, algorithms with few messages are fastest. Above it, among at most
/// kFewOnHost ranks with cores of their own, the direct exchange is fastest, in which each rank
/// sends the chunk that it has just folded.
constexpr std::size_t kAllOnHostBytes = std::size_t{4} << 20;
/// From this chunk size on, a ring's 2 (n - 1) steps are fastest; below it, few long steps are.
constexpr std::size_t kRingChunkBytes = 64 * kKiB;
/// From this chunk size on and with few ranks, 2 (n - 1) steps take about as long as 2 log2 n
/// steps.
constexpr std::size_t kAnyStepsChunkBytes = 512 * kKiB;
/// Beyond this vector size, a broadcast or reduction to a root runs in pieces.
constexpr std::size_t kWholeVectorBytes = 64 * kKiB;
/// Size of these pieces: large enough to hide a message's latency, small enough that all ranks soon
/// have a piece to send.
constexpr std::size_t kPieceBytes = 256 * kKiB;
constexpr int kMaxDepth = 64;
/// A lane must have at least this much data.
constexpr std::size_t kLaneBytes = std::size_t{1} << 20;
constexpr int kMaxLanes = 4;
/// In paired_doubling, slices have this size, so that a slice stays in the second-level cache.
constexpr std::size_t kLentBytes = std::size_t{1} << 20;
/// If all vectors together have at most this size, paired_doubling also wins for more ranks than
/// kFewOnHost.
constexpr std::size_t kPairsBytes = 512 * kKiB;
/// Measured costs are noisy. A depth other than the rules' must take less than this share of the
/// time.
constexpr double kWorthCutting = 0.95;
/// Another algorithm must take less than this share of the time of the rules' choice.
constexpr double kWorthLeavingRules = 0.9;
/// The inputs that one_shot collects on each rank may have at most this size in total.
constexpr std::size_t kOneShotBytes = std::size_t{1} << 20;

struct Pick {
  std::string_view name;
  std::string why;
};

std::string ranks(int size) { return std::to_string(size) + (size == 1 ? " rank" : " ranks"); }
std::string amount(std::size_t bytes) { return std::to_string(bytes) + " bytes"; }

// allreduce, reduce-scatter, allgather: all ranks do the same amount of work.
Pick pick_symmetric(int size, std::size_t bytes, bool round_once) {
  if (size <= kFewRanks) return {"direct", ranks(size) + " are few: fewest steps, rank order"};
  if (bytes <= kSmallBytes && size <= kManyRanks) {
    return {"direct", amount(bytes) + " are little: fewest steps"};
  }
  if (bytes / static_cast<std::size_t>(size) >= kRingChunkBytes) {
    const std::string much = amount(bytes) + " are much for " + ranks(size);
    if (round_once) return {"pairwise", much + ": one partner at a time, rounded once"};
    return {"ring", much + ": neighbours only"};
  }
  if (round_once && size <= kManyRanks) {
    return {"direct", ranks(size) + " can all exchange with all: rounded once"};
  }
  const std::string why = "few steps for " + ranks(size) + " and " + amount(bytes);
  if (is_power_of_two(size)) return {"halving_doubling", why};
  return {"bruck", why + ", not a power of two"};
}

Pick pick_broadcast(int size, std::size_t bytes) {
  if (bytes <= kWholeVectorBytes) return {"binomial", amount(bytes) + " are little: few steps"};
  if (size <= kFewRanks) return {"direct", ranks(size) + " are few: two steps share the work"};
  return {"chain", amount(bytes) + " are much: pieces follow each other"};
}

Pick pick_reduce(int size, std::size_t bytes, bool round_once) {
  if (size <= kFewRanks) return {"direct", ranks(size) + " are few: fewest steps, rank order"};
  if (round_once &&
      (size <= kManyRanks || bytes / static_cast<std::size_t>(size) >= kRingChunkBytes)) {
    return {"direct", "each rank folds a chunk of all " + ranks(size) + ": rounded once"};
  }
  if (bytes <= kWholeVectorBytes) return {"binomial", amount(bytes) + " are little: few steps"};
  return {"chain", amount(bytes) + " are much: pieces follow each other"};
}

Pick pick_scatter(int size, std::size_t bytes) {
  if (size > kFewRanks && bytes <= kSmallBytes) {
    return {"binomial", amount(bytes) + " are little for " + ranks(size) + ": few steps"};
  }
  return {"direct", "the root's blocks travel once only"};
}

Pick pick_alltoall(int size, std::size_t bytes) {
  if (size <= kFewRanks) return {"direct", ranks(size) + " are few: one step"};
  if (bytes <= kSmallBytes && size <= kManyRanks) {
    return {"direct", amount(bytes) + " are little: one step"};
  }
  return {"pairwise", "one partner at a time for " + ranks(size)};
}

Pick pick_allreduce(int size, std::size_t bytes, int hosts, bool shared_cores, bool round_once) {
  const std::size_t all_bytes = bytes * static_cast<std::size_t>(size);
  if (size == 2 && bytes <= (hosts == 1 ? kPairBytes : kDistantPairBytes))
    return {"recursive_doubling", "a pair: one exchange"};
  if (hosts == 1 && all_bytes <= kFewMessagesBytes) {
    return {"recursive_doubling",
            amount(bytes) + " are little for " + ranks(size) + " of a host: fewest messages"};
  }
  if (size <= kFewRanks && all_bytes <= kSmallBytes) {
    return {"one_shot", amount(bytes) + " are little for " + ranks(size) + ": one step"};
  }
  if (hosts > 1 && hosts < size && bytes > kSmallBytes) {
    return {"two_level", std::to_string(hosts) + " hosts of " + ranks(size / hosts) +
                             ": as little as possible between hosts"};
  }
  if (hosts == 1 && size > 2 && size <= kFewRanks && is_power_of_two(size) &&
      (size > kFewOnHost || shared_cores || bytes <= kAllOnHostBytes)) {
    return {"halving_doubling", ranks(size) + " share a host: few messages"};
  }
  if (hosts > 2 && size <= kFewRanks && is_power_of_two(size) &&
      bytes / static_cast<std::size_t>(size) >= kRingChunkBytes) {
    // Senders that share a receiver's network interface reduce its throughput by a fifth.
    const std::string much = amount(bytes) + " are much for " + ranks(size);
    if (!round_once) return {"halving_doubling", much + ": one sender at a time for each line"};
    if (bytes / static_cast<std::size_t>(size) >= kAnyStepsChunkBytes) {
      return {"pairwise", much + ": one sender at a time for each line, rounded once"};
    }
  }
  return pick_symmetric(size, bytes, round_once);
}

Pick pick(Op op, int size, std::size_t bytes, int hosts, bool shared_cores, bool round_once) {
  switch (op) {
    case Op::kAllReduce:
      return pick_allreduce(size, bytes, hosts, shared_cores, round_once);
    case Op::kReduceScatter:
      return pick_symmetric(size, bytes, round_once);
    case Op::kAllGather:
      return pick_symmetric(size, bytes, false);
    case Op::kBroadcast:
      return pick_broadcast(size, bytes);
    case Op::kReduce:
      return pick_reduce(size, bytes, round_once);
    case Op::kScatter:
      return pick_scatter(size, bytes);
    case Op::kAllToAll:
      return pick_alltoall(size, bytes);
    case Op::kBarrier:
    case Op::kReduceScatterV:
    case Op::kAllGatherV:
    case Op::kAllToAllV:
      break;
  }
  return {"dissemination", "the only one"};
}

// Replacements for a name in HCCL_ALGO, best first. The first one that exists for the operation and
// can run is taken. NHR needs ceil(log2 n) steps for any number of ranks, as Bruck's pattern does.
struct Relatives {
  std::string_view wanted;
  std::array<std::string_view, 4> names;
};
constexpr std::array kRelatives = {
    Relatives{"ring", {"chain", "pairwise"}},
    Relatives{"H-D_R", {"bruck", "binomial"}},
    Relatives{"halving_doubling", {"bruck", "binomial"}},
    Relatives{"NHR", {"bruck", "binomial"}},
    Relatives{"NHR_V1", {"bruck", "binomial"}},
    Relatives{"NB", {"binomial"}},
    Relatives{"AHC", {"halving_doubling", "bruck", "binomial"}},
    Relatives{"AHC_BROKE", {"halving_doubling", "bruck", "binomial"}},
    Relatives{"pipeline", {"ring", "pairwise"}},
    Relatives{"pairwise", {"direct"}},
};

const Algorithm* relative(Op op, int size, std::string_view wanted) {
  for (const Relatives& relatives : kRelatives) {
    if (relatives.wanted != wanted) continue;
    for (const std::string_view name : relatives.names) {
      const Algorithm* candidate = find(op, name);
      if (candidate != nullptr && candidate->refuse(size).empty()) return candidate;
    }
  }
  return nullptr;
}

int clamped(std::size_t number, int most) {
  return static_cast<int>(std::clamp<std::size_t>(number, 1, static_cast<std::size_t>(most)));
}

bool is_pipelined(const Algorithm& algorithm) {
  return algorithm.name == "chain" || algorithm.name == "double_tree";
}

// The number of pieces for patterns whose schedule is a pipeline. In the double tree, two trees
// share the vector.
int depth_of(const Algorithm& algorithm, std::size_t bytes) {
  if (!is_pipelined(algorithm)) return 1;
  return clamped(bytes / kPieceBytes / (algorithm.name == "chain" ? 1 : 2), kMaxDepth);
}

// Lanes overlap the waiting and folding of one slice with the messages of another slice. A single
// step of messages has nothing to overlap, and a pipeline overlaps already. Lanes help only between
// two hosts. Within one host ranks wait only for the processors, which more messages would load
// further. Between more hosts, lanes would let several senders share a network interface.
int lanes_of(const Algorithm& algorithm, int size, std::size_t bytes, int hosts) {
  if (hosts != 2 || is_pipelined(algorithm) || algorithm.op == Op::kBarrier) return 1;
  const schedule::Cost cost = algorithm.cost(size, 1);
  return cost.steps <= 1 && cost.folded == 0 ? 1 : clamped(bytes / kLaneBytes, kMaxLanes);
}

// Where ranks share cores, each message costs a context switch, so the total number of messages
// matters. The costs describe only the busiest rank and do not show that number.
bool pairs_pay(const Algorithm& algorithm, int size, std::size_t bytes) {
  return (algorithm.name == "recursive_doubling" || algorithm.name == "halving_doubling") &&
         algorithm.op == Op::kAllReduce && size >= 4 && is_power_of_two(size) &&
         (size <= kFewOnHost || bytes * static_cast<std::size_t>(size) <= kPairsBytes);
}

// ---- by measured costs ----

struct Timed {
  const Algorithm* algorithm = nullptr;
  int depth = 1;
  int lanes = 1;
  double ns = 0;
};

// Predicts the time of an algorithm with its best depth: the rules' depth, unless another depth is
// clearly faster. The costs do not show the effect of lanes.
Timed timed(const Algorithm& algorithm, int size, std::size_t bytes, int hosts,
            const MessageCosts& costs) {
  Timed best{&algorithm, depth_of(algorithm, bytes), lanes_of(algorithm, size, bytes, hosts), 0};
  best.ns = predict_ns(algorithm, size, bytes, best.depth, costs);
  if (!is_pipelined(algorithm)) return best;
  for (int depth = 1; depth <= kMaxDepth; depth *= 2) {
    const double ns = predict_ns(algorithm, size, bytes, depth, costs);
    if (ns < best.ns * kWorthCutting) best = {&algorithm, depth, 1, ns};
  }
  return best;
}

// Whether one rank folds all inputs of an element at once. Two ranks always do.
bool rounds_once(const Algorithm& algorithm, int size) {
  return size <= 2 || algorithm.name == "direct" || algorithm.name == "one_shot" ||
         algorithm.name == "pairwise";
}

// Only the rules choose two_level, because the costs do not distinguish links within a host from
// links between hosts.
bool may_be_taken(const Algorithm& algorithm, int size, std::size_t bytes) {
  if (!algorithm.refuse(size).empty() || algorithm.name == "two_level") return false;
  return algorithm.name != "one_shot" || bytes * static_cast<std::size_t>(size) <= kOneShotBytes;
}

// If `round_once`, an algorithm that rounds more often than the rules' choice is no candidate.
Timed least(const Timed& ruled, int size, std::size_t bytes, int hosts, const MessageCosts& costs,
            bool round_once, std::string& why) {
  const Algorithm& by_rules = *ruled.algorithm;
  const bool once = round_once && rounds_once(by_rules, size);
  Timed other;  // the best algorithm except the rules' choice
  for (const Algorithm& algorithm : schedule::algorithms()) {
    if (by_rules.name == "two_level") break;
    if (algorithm.op != by_rules.op || &algorithm == &by_rules) continue;
    if (!may_be_taken(algorithm, size, bytes) || (once && !rounds_once(algorithm, size))) continue;
    const Timed each = timed(algorithm, size, bytes, hosts, costs);
    if (other.algorithm == nullptr || each.ns < other.ns) other = each;
  }
  why = "predicted " + microseconds(ruled.ns);
  if (other.algorithm == nullptr) {
    why += ", nothing else is compared";
  } else if (other.ns < ruled.ns * kWorthLeavingRules) {
    why = "predicted " + microseconds(other.ns) + ", " + std::string(by_rules.name) + " " +
          microseconds(ruled.ns);
    return other;
  } else {
    why += ", next best " + std::string(other.algorithm->name) + " " + microseconds(other.ns);
  }
  return ruled;
}

// The wanted algorithm or its replacement; the reason says which.
Choice wish(Op op, int size, std::string_view wanted) {
  Choice choice;
  if (wanted.empty() || wanted == "NA" || wanted == "null") return choice;
  choice.reason = "HCCL_ALGO asks for " + std::string(wanted);
  const Algorithm* exact = find(op, wanted);
  const std::string refusal = exact == nullptr ? "" : exact->refuse(size);
  if (exact != nullptr && refusal.empty()) {
    choice.algorithm = exact;
    return choice;
  }
  choice.reason += exact == nullptr
                       ? ", which " + std::string(to_string(op)) + " does not have here"
                       : ", but " + refusal;
  choice.algorithm = relative(op, size, wanted);
  if (choice.algorithm != nullptr) {
    choice.reason += "; " + std::string(choice.algorithm->name) + " is nearest to it";
  }
  return choice;
}

}  // namespace

std::string microseconds(double ns) {
  return fmt::format("{:.{}f} us", ns / 1e3, ns < 1e4 ? 1 : 0);
}

Choice choose_remote(Op op, int size, std::size_t bytes, std::string_view wanted, int hosts,
                     const MessageCosts* costs, bool shared_cores, bool round_once) {
  Choice choice = wish(op, size, wanted);
  choice.hosts = hosts;
  const bool asked = choice.algorithm != nullptr;
  std::string why;
  if (!asked) {
    Pick rules = pick(op, size, bytes, hosts, shared_cores, round_once);
    choice.algorithm = find(op, rules.name);
    why = (choice.reason.empty() ? "" : "default: ") + rules.why;
  }
  // A single rank moves no data, and barrier has only one algorithm.
  const bool by_costs = costs != nullptr && size > 1 && op != Op::kBarrier;
  if (by_costs) {
    Timed best = timed(*choice.algorithm, size, bytes, hosts, *costs);
    if (asked) {
      why = "predicted " + microseconds(best.ns);
    } else {
      best = least(best, size, bytes, hosts, *costs, round_once, why);
    }
    choice.algorithm = best.algorithm;
    choice.depth = best.depth;
    choice.lanes = best.lanes;
  }
  if (!why.empty()) choice.reason += (choice.reason.empty() ? "" : "; ") + why;
  const bool in_pairs =
      !asked && hosts == 1 && shared_cores && pairs_pay(*choice.algorithm, size, bytes);
  if (in_pairs) {
    choice.algorithm = find(op, "paired_doubling");
    choice.reason += "; cores are shared: in pairs";
  }
  if (in_pairs || !by_costs) {
    choice.depth = depth_of(*choice.algorithm, bytes);
    choice.lanes = lanes_of(*choice.algorithm, size, bytes, hosts);
  }
  if (choice.algorithm->name == "paired_doubling") choice.slice = kLentBytes;
  return choice;
}

double predict_ns(const Choice& choice, int size, std::size_t bytes, const MessageCosts& costs) {
  return predict_ns(*choice.algorithm, size, bytes, choice.depth, costs);
}

}  // namespace hccl::select
