#include "hccl/control/claims.h"

namespace hccl::control {
namespace {

constexpr std::uint64_t kTicks = 100;  // clock ticks of Process::started in a second

std::string place_of(const Claim& each) {
  return each.address + " pid " + std::to_string(each.pid);
}

}  // namespace

Status two_claims(const Claim& first, const Claim& second) {
  const auto name = [](const Claim& each) {
    return place_of(each) + " (started " + std::to_string(each.started / kTicks) +
           " s after the boot)";
  };
  return {Code::kPara,
          "EI0016: two processes claim rank " + std::to_string(first.rank) + ": " + name(first) +
              " and " + name(second) +
              ". If they belong to two jobs, set HCCL_JOB_ID to a text of its own for each job; "
              "if one is left over from an earlier attempt, end it",
          static_cast<int>(first.rank)};
}

bool is_earlier(const Claim& one, const Claim& than) {
  return one.machine == than.machine && one.attempt.agent != 0 &&
         one.attempt.agent == than.attempt.agent && one.attempt.number < than.attempt.number;
}

Status earlier_attempt(const Claim& old, const Claim& young) {
  const auto name = [](const Claim& each) {
    return "rank " + std::to_string(each.rank) + " (" + place_of(each) + ", restart " +
           std::to_string(each.attempt.number) + ")";
  };
  return {Code::kPara,
          "EI0016: " + name(old) + " is left over from an earlier attempt of its agent: " +
              "TORCHELASTIC_RESTART_COUNT is higher for " + name(young),
          static_cast<int>(old.rank)};
}

bool is_older(const Claim& one, const Claim& than) {
  return one.machine == than.machine && one.started != 0 && one.started + kTicks < than.started;
}

}  // namespace hccl::control
