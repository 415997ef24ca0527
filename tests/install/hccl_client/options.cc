#include "options.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <sstream>

#include "data.h"
#include "operators.h"

namespace {

const char kUsage[] =
    "hccl_client [options], under mpirun\n"
    "  -O LIST   operators, or all (default)\n"
    "  -d LIST   data types, or all (fp32)\n"
    "  -o LIST   reductions, or all (sum)\n"
    "  -b -e N   first and last size in bytes, with K, M or G (64M)\n"
    "  -f N | -i N   factor from size to size (2), or bytes to add\n"
    "  -n N -w N iterations (20), and those before the clock starts (10)\n"
    "  -r RANK   root (0)\n"
    "  -p N      devices of this host (all)\n"
    "  -c 0|1    compare every result (1)\n"
    "  -z 1      zero copy: one range of addresses, memory mapped as sizes grow\n"
    "  -m 1      symmetric windows\n"
    "  -t 1      queue everything behind an event before anything runs\n"
    "  -g 1      join with a configuration\n"
    "  -P DIR    profile\n";

bool parse_number(const char* text, uint64_t* value) {
  char* end = nullptr;
  *value = std::strtoull(text, &end, 10);
  if (end == text || *text == '-') return false;
  int shift = 0;
  if (*end == 'K') shift = 10;
  if (*end == 'M') shift = 20;
  if (*end == 'G') shift = 30;
  if (shift != 0) ++end;
  *value <<= shift;
  return *end == '\0';
}

std::vector<std::string> split(const std::string& list) {
  std::vector<std::string> words;
  std::istringstream stream(list);
  for (std::string word; std::getline(stream, word, ',');) words.push_back(word);
  return words;
}

bool parse_types(const std::string& list, std::vector<HcclDataType>* types) {
  types->clear();
  if (list == "all") {
    *types = all_types();
    return true;
  }
  for (const std::string& word : split(list)) {
    HcclDataType type;
    if (!type_by_name(word, &type)) return false;
    types->push_back(type);
  }
  return !types->empty();
}

bool parse_reductions(const std::string& list, std::vector<HcclReduceOp>* reductions) {
  reductions->clear();
  for (int op = HCCL_REDUCE_SUM; op <= HCCL_REDUCE_MIN; ++op) {
    const auto reduction = static_cast<HcclReduceOp>(op);
    bool wanted = list == "all";
    for (const std::string& word : split(list)) wanted = wanted || word == name_of(reduction);
    if (wanted) reductions->push_back(reduction);
  }
  return !reductions->empty();
}

bool parse_operators(const std::string& list, std::vector<std::string>* operators) {
  if (list == "all") return true;
  *operators = split(list);
  for (const std::string& word : *operators) {
    if (find_operator(word) == nullptr) return false;
  }
  return !operators->empty();
}

bool parse_option(int option, const char* text, Options* options) {
  if (option == 'O') return parse_operators(text, &options->operators);
  if (option == 'd') return parse_types(text, &options->types);
  if (option == 'o') return parse_reductions(text, &options->reductions);
  if (option == 'P') {
    options->profile = text;
    return true;
  }
  uint64_t number = 0;
  if (!parse_number(text, &number)) return false;
  const std::map<int, bool*> switches = {{'c', &options->check},
                                         {'z', &options->zero_copy},
                                         {'m', &options->symmetric},
                                         {'t', &options->gate},
                                         {'g', &options->config}};
  if (switches.count(option) != 0) {
    *switches.at(option) = number == 1;
    return number <= 1;
  }
  struct Number {
    uint64_t* value;
    uint64_t least;
    uint64_t most;
  };
  const uint64_t any = ~uint64_t{0}, many = 1000000;
  const std::map<int, Number> numbers = {
      {'b', {&options->begin, 0, any}},       {'e', {&options->end, 0, any}},
      {'i', {&options->step, 0, any}},        {'f', {&options->factor, 2, any}},
      {'n', {&options->iterations, 1, many}}, {'w', {&options->warmup, 0, many}},
      {'r', {&options->root, 0, many}},       {'p', {&options->devices, 1, many}}};
  const Number& wanted = numbers.at(option);  // getopt returns no other option
  *wanted.value = number;
  return wanted.least <= number && number <= wanted.most;
}

}  // namespace

bool parse_options(int argc, char** argv, Options* options) {
  options->types = {HCCL_DATA_TYPE_FP32};
  options->reductions = {HCCL_REDUCE_SUM};
  for (int option; (option = getopt(argc, argv, "O:d:o:b:e:f:i:n:w:r:p:c:z:m:t:g:P:h")) != -1;) {
    if (option == 'h' || option == '?') {
      std::fputs(kUsage, stderr);
      return false;
    }
    if (!parse_option(option, optarg, options)) {
      std::fprintf(stderr, "hccl_client: -%c cannot be \"%s\"\n", option, optarg);
      return false;
    }
  }
  if (optind < argc) {
    std::fprintf(stderr, "hccl_client: what is \"%s\"?\n", argv[optind]);
    return false;
  }
  if (options->zero_copy && options->symmetric) {
    std::fputs("hccl_client: -z and -m exclude each other\n", stderr);
    return false;
  }
  if (options->begin == 0 || options->end < options->begin) {
    std::fputs("hccl_client: sizes go from -b, at least 1, to -e\n", stderr);
    return false;
  }
  return true;
}
