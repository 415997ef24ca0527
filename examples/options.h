// The command line of train_digits.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace examples {

struct Options {
  int epochs = 12;
  int batch = 96;    ///< images in a batch, over all ranks together
  float lr = 0.05f;  ///< learning rate of the first epoch; falls linearly to 0 after the last one
  int64_t seed = 1;  ///< seed of the first weights and of the images' order; at least 0
  bool hcom_parallel = false;
  bool scattered = false;            ///< allocate every gradient separately
  std::vector<float> split_by_size;  ///< percentages; empty: not given
  std::vector<uint32_t> split_by_idx;
  std::string data;     ///< the digits; default: the file next to the sources
  std::string weights;  ///< file for the final weights; empty: none
  std::string trace;    ///< file for the trace; empty: none
};

/// Reads the command line of a program that trains `tensor_count` tensors. If the program must end
/// now, returns its exit status: 0 after --help, or 2 after a bad option. A line on stderr then
/// names the bad option.
std::optional<int> parse_options(int argc, char** argv, uint32_t tensor_count, Options* options);

/// Prints one line about a bad option or file on stderr. Returns the exit status, 2.
int usage_error(const std::string& text);

}  // namespace examples
