#include "benchmarks/split/model.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>

namespace split_bench {

Model load_model(const std::string& path, double scale, double shrink) {
  std::ifstream file(path);
  if (!file) throw std::runtime_error("cannot read " + path);
  Model model;
  try {
    const auto data = nlohmann::json::parse(file);
    model.name = data.at("model");
    model.step = data.at("step_ms").get<double>() / 1e3 / shrink;
    for (const auto& item : data.at("gradients")) {
      const double elements = item.at("elements").get<double>() / scale / shrink;
      model.gradients.push_back({item.at("name"),
                                 static_cast<std::uint64_t>(std::max(1.0, std::round(elements))),
                                 item.at("ready_ms").get<double>() / 1e3 / shrink});
    }
  } catch (const nlohmann::json::exception& error) {
    throw std::runtime_error(path + " is no model: " + error.what());
  }
  double before = 0;
  for (const auto& gradient : model.gradients) {
    if (!(gradient.ready >= before && gradient.ready <= model.step * 1.001))
      throw std::runtime_error(path + ": ready times must rise up to step_ms, at " + gradient.name);
    before = gradient.ready;
  }
  if (model.gradients.empty()) throw std::runtime_error(path + ": no gradients");
  return model;
}

}  // namespace split_bench
