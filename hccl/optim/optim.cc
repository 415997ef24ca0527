// The public functions. They run the passes over a table, and compute values from sums between two
// passes.
#include <algorithm>
#include <cmath>
#include <span>
#include <vector>

#include "hccl/hccl_optim.h"
#include "hccl/optim/piece.h"
#include "hccl/optim/table.h"

namespace hccl::optim {
namespace {

double total(std::span<const Sums> pieces, int k) {
  double sum = 0;
  for (const Sums& piece : pieces) sum += piece.values[k];
  return sum;
}

/// Lamb: sets values[0] to lr times the ratio of the norms. The ratio is 1 if either norm is 0 or
/// HCCL_OPTIM_NO_TRUST is set.
void trust(const HcclOptimNumbers& n, std::span<Sums> pieces) {
  constexpr double kLargestNorm = 10;
  const double parameter = std::min(std::sqrt(total(pieces, 0)), kLargestNorm);
  const double update = std::sqrt(total(pieces, 1));
  const bool trusts = (n.flags & HCCL_OPTIM_NO_TRUST) == 0 && parameter != 0 && update != 0;
  for (Sums& piece : pieces) piece.values[0] = n.lr * (trusts ? parameter / update : 1);
}

/// AdamP: the sums over a row, or over a whole parameter.
struct Projection {
  double gradient_parameter, gradients, parameters, update_parameter, eps;

  Projection(std::span<const Sums> pieces, double small)
      : gradient_parameter(total(pieces, 0)),
        gradients(total(pieces, 1)),
        parameters(total(pieces, 2)),
        update_parameter(total(pieces, 3)),
        eps(small) {}
  double cosine() const {
    return std::abs(gradient_parameter) / ((std::sqrt(gradients) + eps) * norm());
  }
  double norm() const { return std::sqrt(parameters) + eps; }
  /// The part of the update that is parallel to the parameter, as a multiple of the parameter.
  double along() const { return update_parameter / (norm() * norm()); }
};

/// AdamP: sets values[0] to the multiple of p that is subtracted from the update, and values[1] to
/// the factor by which weight decay multiplies p.
void project(const HcclOptimSpan& span, std::span<Sums> pieces) {
  const HcclOptimNumbers& n = *span.numbers;
  const auto finish = [&](Sums& piece, double along, double ratio) {
    piece.values[0] = along;
    piece.values[1] = n.weight_decay > 0 ? 1 - n.lr * n.weight_decay * ratio : 1;
  };
  const auto limit = [&](std::size_t length) {
    return n.delta / std::sqrt(static_cast<double>(length));
  };
  if (span.rows > 0) {
    double largest = 0;
    for (const Sums& row : pieces) {
      largest = std::max(largest, Projection({&row, 1}, n.eps).cosine());
    }
    if (largest < limit(span.count / span.rows)) {
      for (Sums& row : pieces) finish(row, Projection({&row, 1}, n.eps).along(), n.wd_ratio);
      return;
    }
    const Projection whole(pieces, n.eps);
    if (whole.cosine() < limit(span.count)) {
      const double along = whole.along();
      for (Sums& row : pieces) finish(row, along, n.wd_ratio);
      return;
    }
  }
  for (Sums& piece : pieces) finish(piece, 0, 1);
}

void step_twice(HcclOptimRule rule, const Table& table, const HcclOptimThreads& threads) {
  std::vector<Sums> sums(table.pieces());
  table.run(threads, sums.data(), [rule](const Batch& batch) { step(rule, Pass::kFirst, batch); });
  for (std::size_t i = 0; i < table.spans().size(); ++i) {
    const std::span<Sums> own(sums.data() + table.first_piece(i),
                              table.first_piece(i + 1) - table.first_piece(i));
    if (rule == HCCL_OPTIM_LAMB) {
      trust(*table.spans()[i].numbers, own);
    } else {
      project(table.spans()[i], own);
    }
  }
  table.run(threads, sums.data(), [rule](const Batch& batch) { step(rule, Pass::kSecond, batch); });
}

}  // namespace
}  // namespace hccl::optim

using hccl::optim::Batch;
using hccl::optim::Pass;
using hccl::optim::Sums;
using hccl::optim::Table;

void HcclOptimStep(HcclOptimRule rule, const HcclOptimSpan* spans, uint64_t number,
                   const HcclOptimThreads* threads) {
  const Table table({spans, number});
  if (rule == HCCL_OPTIM_LAMB || rule == HCCL_OPTIM_ADAMP) {
    return hccl::optim::step_twice(rule, table, *threads);
  }
  table.run(*threads, nullptr,
            [rule](const Batch& batch) { hccl::optim::step(rule, Pass::kOnly, batch); });
}

void HcclOptimNorms(const HcclOptimSpan* spans, uint64_t number, const HcclOptimThreads* threads,
                    HcclOptimNorm* norm) {
  const Table table({spans, number});
  std::vector<Sums> sums(table.pieces());
  table.run(*threads, sums.data(), [](const Batch& batch) { hccl::optim::norms(batch); });
  *norm = {0, 0};
  for (const Sums& piece : sums) {  // the order does not depend on the number of threads
    norm->squares += piece.values[0];
    norm->largest = std::max(norm->largest, piece.values[1]);
  }
}

void HcclOptimScale(const HcclOptimSpan* spans, uint64_t number, double factor,
                    const HcclOptimThreads* threads) {
  const Table table({spans, number});
  table.run(*threads, nullptr, [factor](const Batch& batch) { hccl::optim::scale(batch, factor); });
}

const char* HcclOptimInstructionSet() { return hccl::optim::instruction_set(); }
