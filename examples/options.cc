#include "options.h"

#include <hccl/hcom.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <stdexcept>

namespace examples {
namespace {

void require(bool condition, const std::string& text) {
  if (!condition) throw std::runtime_error(text);
}

// Returns the numbers of a list such as "80,20".
template <typename Number>
std::vector<Number> parse_list(const std::string& option, const std::string& text) {
  std::string complaint = option;
  complaint.append(": expected numbers with commas between them, not '").append(text).append("'");
  std::vector<Number> numbers;
  const char* next = text.data();
  const char* const end = text.data() + text.size();
  while (true) {
    Number number = 0;
    const auto [stop, error] = std::from_chars(next, end, number);
    require(error == std::errc() && (stop == end || *stop == ','), complaint);
    numbers.push_back(number);
    if (stop == end) break;
    next = stop + 1;
  }
  require(numbers.size() <= HCCL_MAX_SEGMENT_NUM,
          option + ": at most " + std::to_string(HCCL_MAX_SEGMENT_NUM) + " segments");
  return numbers;
}

std::vector<float> parse_split_by_size(const std::string& text) {
  auto percentages = parse_list<float>("--split-by-size", text);
  double sum = 0;
  for (const float percentage : percentages) {
    require(percentage > 0 && percentage <= 100,
            "--split-by-size: a percentage is above 0 and at most 100");
    sum += static_cast<double>(percentage);
  }
  require(std::abs(sum - 100) <= 1e-3, "--split-by-size: the percentages must add up to 100");
  return percentages;
}

std::vector<uint32_t> parse_split_by_idx(const std::string& text, uint32_t tensor_count) {
  auto indices = parse_list<uint32_t>("--split-by-idx", text);
  require(
      std::adjacent_find(indices.begin(), indices.end(), std::greater_equal<>()) == indices.end(),
      "--split-by-idx: the indices must ascend");
  require(indices.back() == tensor_count - 1,
          "--split-by-idx: the last index must be that of the last gradient, " +
              std::to_string(tensor_count - 1));
  return indices;
}

// Checks a path before the training, because the file is written only after it.
void check_output(const std::string& option, const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  const fs::path parent = fs::path(path).parent_path();
  require(!path.empty(), option + ": the file name is empty");
  require(parent.empty() || fs::is_directory(parent, ignored),
          option + ": no directory " + parent.string());
  require(!fs::is_directory(path, ignored), option + ": " + path + " is a directory");
}

void check(const CLI::App& app, const Options& options) {
  require(options.epochs >= 1, "--epochs: at least 1");
  require(options.batch >= 1, "--batch: at least 1");
  require(std::isfinite(options.lr) && options.lr > 0, "--lr: a number above 0");
  require(options.seed >= 0, "--seed: at least 0");
  if (app.count("--weights") > 0) check_output("--weights", options.weights);
  if (app.count("--trace") > 0) check_output("--trace", options.trace);
}

}  // namespace

std::optional<int> parse_options(int argc, char** argv, uint32_t tensor_count, Options* options) {
  options->data = HCCL_EXAMPLES_DATA;
  CLI::App app("Trains a network on handwritten digits, on as many ranks as mpirun starts.",
               "train_digits");
  std::string by_size;
  std::string by_idx;
  app.option_defaults()->always_capture_default();
  app.add_option("--epochs", options->epochs, "how often to go through the training images");
  app.add_option("--batch", options->batch, "images in a batch, over all ranks together");
  app.add_option("--lr", options->lr, "learning rate; it falls evenly to 0 after the last epoch");
  app.add_option("--seed", options->seed,
                 "seed of the first weights and of the order of the images");
  app.add_flag("--hcom-parallel", options->hcom_parallel,
               "reduce segments while backward computes the next gradients");
  auto* split_by_size = app.add_option("--split-by-size", by_size,
                                       "cut the gradients at these percentages of their bytes: "
                                       "80,20");
  auto* split_by_idx =
      app.add_option("--split-by-idx", by_idx, "cut the gradients after these indices: 0,7");
  app.add_flag("--scattered", options->scattered, "allocate every gradient separately");
  app.add_option("--data", options->data, "the digits: a CSV file");
  app.add_option("--weights", options->weights, "write the final weights: raw float32");
  app.add_option("--trace", options->trace, "write the trace of rank 0: .json, .csv or Protobuf");
  try {
    app.parse(argc, argv);
    check(app, *options);
    require(split_by_size->count() == 0 || split_by_idx->count() == 0,
            "--split-by-size and --split-by-idx: give only one of them");
    if (split_by_size->count() > 0) options->split_by_size = parse_split_by_size(by_size);
    if (split_by_idx->count() > 0) {
      options->split_by_idx = parse_split_by_idx(by_idx, tensor_count);
    }
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help
    return usage_error(error.what());
  } catch (const std::exception& error) {
    return usage_error(error.what());
  }
  return std::nullopt;
}

int usage_error(const std::string& text) {
  std::fprintf(stderr, "train_digits: %s\n", text.c_str());
  return 2;
}

}  // namespace examples
