// The gradients of a real network, from models/*.json.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace split_bench {

struct Model {
  struct Gradient {
    std::string name;
    std::uint64_t elements = 0;  ///< fp32
    double ready = 0;            ///< seconds from the start of forward
    std::uint64_t bytes() const { return elements * sizeof(float); }
  };
  std::string name;
  double step = 0;  ///< forward and backward; seconds
  std::vector<Gradient> gradients;
};

/// The gradients divided by `scale`, but at least one element each; the times stay. `shrink`
/// divides gradients and times. Throws std::runtime_error, which names the file, if the file is no
/// model.
Model load_model(const std::string& path, double scale, double shrink);

}  // namespace split_bench
