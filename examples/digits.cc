#include "digits.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <fstream>
#include <numeric>
#include <stdexcept>
#include <string_view>

#include "random.h"

namespace examples {
namespace {

constexpr uint32_t kMaxPixel = 16;
constexpr uint64_t kSplitSeed = 1797;
constexpr size_t kFewestImages = 10;

// Reads the whole number at the front of *text. A comma or the end of the line must follow it.
// Returns false if there is no such number or if it exceeds `max`.
bool next_number(std::string_view* text, uint32_t max, bool last, uint32_t* value) {
  const char* end = text->data() + text->size();
  const auto [stop, error] = std::from_chars(text->data(), end, *value);
  if (error != std::errc() || *value > max) return false;
  if (last) return stop == end;
  if (stop == end || *stop != ',') return false;
  *text = std::string_view(stop + 1, static_cast<size_t>(end - stop - 1));
  return true;
}

bool parse_image(std::string_view text, std::array<float, kPixels>* image, uint32_t* label) {
  for (float& pixel : *image) {
    uint32_t value = 0;
    if (!next_number(&text, kMaxPixel, false, &value)) return false;
    pixel = static_cast<float>(value) / kMaxPixel;
  }
  return next_number(&text, kClasses - 1, true, label);
}

Images read_images(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw std::runtime_error(path + ": cannot open the data file");
  Images images;
  std::string line;
  std::array<float, kPixels> image;
  for (size_t number = 1; std::getline(file, line); ++number) {
    if (!line.empty() && line.back() == '\r') line.pop_back();
    uint32_t label = 0;
    if (!parse_image(line, &image, &label)) {
      throw std::runtime_error(path + ": line " + std::to_string(number) +
                               ": expected 64 pixels (0 to 16) and a digit (0 to 9)");
    }
    images.append(image.data(), label);
  }
  if (file.bad()) throw std::runtime_error(path + ": cannot read the data file");
  if (images.size() < kFewestImages) {
    throw std::runtime_error(path + ": " + std::to_string(images.size()) +
                             " images, expected at least " + std::to_string(kFewestImages));
  }
  return images;
}

}  // namespace

void Images::append(const float* image, uint32_t label) {
  pixels.insert(pixels.end(), image, image + kPixels);
  labels.push_back(label);
}

Digits load_digits(const std::string& path) {
  const Images all = read_images(path);
  const std::vector<uint32_t> order = shuffled(all.size(), kSplitSeed);
  const size_t train_count = all.size() - all.size() / 5;
  Digits digits;
  take_rows(all, order, 0, train_count, &digits.train);
  take_rows(all, order, train_count, all.size(), &digits.test);
  return digits;
}

std::vector<uint32_t> shuffled(size_t count, uint64_t seed) {
  std::vector<uint32_t> order(count);
  std::iota(order.begin(), order.end(), 0u);
  std::stable_sort(order.begin(), order.end(), [seed](uint32_t a, uint32_t b) {
    return random_bits(seed, a) < random_bits(seed, b);
  });
  return order;
}

void take_rows(const Images& images, const std::vector<uint32_t>& order, size_t begin, size_t end,
               Images* batch) {
  batch->pixels.clear();
  batch->labels.clear();
  for (size_t i = begin; i < end; ++i) {
    batch->append(&images.pixels[order[i] * kPixels], images.labels[order[i]]);
  }
}

}  // namespace examples
