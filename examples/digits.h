// The handwritten digits: reading the file, and the fixed split into training and test images.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace examples {

constexpr size_t kPixels = 64;  ///< 8 x 8
constexpr size_t kClasses = 10;

/// Contiguous images, row-major, each pixel 0 to 1, and the digit of each image (0 to 9).
struct Images {
  std::vector<float> pixels;
  std::vector<uint32_t> labels;

  size_t size() const { return labels.size(); }
  void append(const float* image, uint32_t label);
};

struct Digits {
  Images train;
  Images test;
};

/// Reads a CSV file of 65 whole numbers a line (64 pixels 0 to 16, then the digit), shuffles the
/// images in an order that never changes, and keeps the last fifth for the test. Throws
/// std::runtime_error with one line that names the file and, if possible, the line.
Digits load_digits(const std::string& path);

/// Returns the numbers 0 to count - 1 in the random order of `seed`.
std::vector<uint32_t> shuffled(size_t count, uint64_t seed);

/// Copies the rows [begin, end) of `order` from `images` into `batch`, which is overwritten.
void take_rows(const Images& images, const std::vector<uint32_t>& order, size_t begin, size_t end,
               Images* batch);

}  // namespace examples
