// The short form of a target, without libFuzzer: replays its corpus, then the same mutations of it
// every time.
//   fuzz_<target> CORPUS [MUTATIONS]     an input that ends the process is kept as crash-<target>
//   fuzz_<target> FILE
#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <vector>

#include "tests/fuzz/fuzz.h"

extern "C" void __sanitizer_set_death_callback(void (*)()) __attribute__((weak));

namespace {

std::string current, crash_file;

void save_input() { std::ofstream(crash_file, std::ios::binary) << current; }
void save_input_and_die(int signal) {
  save_input();
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

void run(std::string input) {
  current = std::move(input);
  // The vector has exactly this size, so that the sanitizer finds a read behind its end.
  const std::vector<std::uint8_t> bytes(current.begin(), current.end());
  LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
}

class Mutator {
 public:
  explicit Mutator(const std::vector<std::string>& corpus) : corpus_(corpus) {}
  std::string next() {
    std::string bytes = any();
    for (std::size_t steps = 1 + below(4); steps-- > 0;) step(bytes);
    bytes.resize(std::min<std::size_t>(bytes.size(), 1 << 16));
    return bytes;
  }

 private:
  std::size_t below(std::size_t bound) { return bound == 0 ? 0 : random_() % bound; }
  const std::string& any() { return corpus_[below(corpus_.size())]; }
  void step(std::string& bytes) {
    constexpr std::uint64_t kNumbers[] = {0,      1,          0x7f,       0x80, 0xff,
                                          0xffff, 0x7fffffff, 0xffffffff, ~0ull};
    const std::size_t at = below(bytes.size() + 1);
    const std::size_t left = bytes.size() - at;
    switch (below(6)) {
      case 0:
        if (left != 0) bytes[at] = static_cast<char>(bytes[at] ^ (1 << below(8)));
        break;
      case 1:
        if (left != 0) bytes[at] = static_cast<char>(below(256));
        break;
      case 2:
        bytes.erase(at, below(std::min<std::size_t>(left, 32) + 1));
        break;
      case 3: {  // a piece of another input
        const std::string& other = any();
        const std::size_t from = below(other.size() + 1);
        bytes.insert(at, other.substr(from, below(64)));
        break;
      }
      case 4:
        bytes.insert(at, bytes.substr(at, below(64)));
        break;
      default: {
        const std::uint64_t number = kNumbers[below(std::size(kNumbers))];
        std::memcpy(bytes.data() + at, &number, std::min(left, std::size_t{1} << below(4)));
      }
    }
  }

  const std::vector<std::string>& corpus_;
  std::mt19937 random_{20251125};  // NOLINT(cert-msc51-cpp): the same inputs every time
};

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  crash_file = "crash-" + std::filesystem::path(argv[0]).filename().string();
  if (__sanitizer_set_death_callback != nullptr) __sanitizer_set_death_callback(save_input);
  for (const int signal : {SIGABRT, SIGSEGV, SIGFPE, SIGBUS}) {
    std::signal(signal, save_input_and_die);
  }

  std::vector<std::filesystem::path> files;
  if (std::filesystem::is_directory(argv[1])) {
    for (const auto& entry : std::filesystem::directory_iterator(argv[1])) files.push_back(entry);
  } else {
    files.emplace_back(argv[1]);
  }
  std::sort(files.begin(), files.end());
  std::vector<std::string> corpus;
  for (const auto& file : files) {
    std::ifstream in(file, std::ios::binary);
    corpus.emplace_back(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
    run(corpus.back());
  }
  if (corpus.empty()) return 2;
  const int mutations = argc > 2 ? std::atoi(argv[2]) : 0;
  Mutator mutator(corpus);
  for (int i = 0; i < mutations; ++i) run(mutator.next());
  std::printf("%zu inputs of the corpus, %d mutations\n", corpus.size(), mutations);
}
