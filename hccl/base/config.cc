#include "hccl/base/config.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdlib>
#include <map>
#include <string_view>
#include <thread>

#include "hccl/base/config_log.h"
#include "hccl/base/npu_settings.h"
#include "hccl/base/socket.h"
#include "hccl/base/text.h"

namespace hccl {
namespace {

Result<std::uint64_t> number(std::string_view name, std::string_view text, std::uint64_t low,
                             std::uint64_t high, std::string_view why = {}) {
  const auto value = decimal(text);
  if (!value || *value < low || *value > high) {
    return invalid(
        name, text,
        "an integer " + std::to_string(low) + " to " + std::to_string(high) + std::string(why));
  }
  return *value;
}

using Get = std::function<std::optional<std::string>(const char*)>;

// Reads a number, if the variable is set.
template <class Number>
Status read_number(const Get& get, const char* name, std::uint64_t low, std::uint64_t high,
                   Number& out, std::string_view why = {}) {
  const auto text = get(name);
  if (!text) return {};
  HCCL_ASSIGN_OR_RETURN(const auto value, number(name, *text, low, high, why));
  out = static_cast<Number>(value);
  return {};
}

std::string without_blanks(std::string_view text) {
  std::string out(text);
  std::erase_if(out, [](unsigned char c) { return std::isspace(c) != 0; });
  return out;
}

std::string lower(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(),
                 [](unsigned char c) { return std::tolower(c); });
  return out;
}

Result<std::vector<std::pair<std::uint16_t, std::uint16_t>>> port_ranges(std::string_view name,
                                                                         const std::string& text) {
  constexpr std::string_view kExpected =
      "\"auto\" or ports and ranges lo-hi, 1..65535, not overlapping";
  std::vector<std::pair<std::uint16_t, std::uint16_t>> ranges;
  if (text == "auto") return std::vector<std::pair<std::uint16_t, std::uint16_t>>{{0, 0}};
  for (const std::string_view part : split_at(text, ',')) {
    const auto ends = split_at(part, '-');
    const auto low = number(name, ends[0], 1, 65535);
    const auto high = ends.size() == 1 ? low : number(name, ends[1], 1, 65535);
    if (ends.size() > 2 || !low.ok() || !high.ok() || low.value() > high.value()) {
      return invalid(name, text, kExpected);
    }
    ranges.emplace_back(static_cast<std::uint16_t>(low.value()),
                        static_cast<std::uint16_t>(high.value()));
  }
  auto sorted = ranges;
  std::sort(sorted.begin(), sorted.end());
  for (std::size_t i = 1; i < sorted.size(); ++i) {
    if (sorted[i].first <= sorted[i - 1].second) return invalid(name, text, kExpected);
  }
  return ranges;
}

// In the order of Wire.
constexpr std::array kWires = {"auto", "plain", "crc", "tls"};

// The most bytes of HCCL_ALGO and HCCL_TRANSPORT. They are limited because ranks compare both in
// one frame when they join. An HCCL_ALGO that names all operations and levels has 1000 bytes.
constexpr std::size_t kAlgoCap = 1536;
constexpr std::size_t kTransportCap = 64;

constexpr std::array kLevels = {"level0", "level1", "level2", "level3"};
constexpr std::array kHcclWords = {"NA", "null", "ring",      "H-D_R",    "NHR",      "NHR_V1",
                                   "NB", "AHC",  "AHC_BROKE", "pipeline", "pairwise", "fullmesh"};
constexpr std::array kOperations = {"allreduce", "allgather", "reducescatter", "broadcast",
                                    "reduce",    "scatter",   "alltoall",      "gather",
                                    "send",      "receive",   "sendrecv"};

template <class Array>
bool contains(const Array& words, std::string_view word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

Status bad_algo(const std::string& text, const std::string& why) {
  return invalid(
      "HCCL_ALGO", text,
      "level0:NA;level1:ring or allreduce=level0:NA;level1:ring/allgather=… (" + why + ")");
}

// Whether the word has the form of the library's own names.
bool is_name(std::string_view word) {
  return !word.empty() && std::all_of(word.begin(), word.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
  });
}

// Parses "level0:NA;level1:ring": returns the algorithm of each level in the text.
Result<std::map<int, std::string>> parse_levels(const std::string& text, std::string_view levels,
                                                bool common) {
  std::map<int, std::string> chosen;
  for (const std::string_view item : split_at(levels, ';')) {
    const auto quoted = [](std::string_view word) { return "\"" + std::string(word) + "\""; };
    const auto colon = item.find(':');
    if (colon == std::string_view::npos) return bad_algo(text, quoted(item) + " has no colon");
    const std::string_view word = item.substr(0, colon);
    const std::string_view algorithm = item.substr(colon + 1);
    const auto level = std::find(kLevels.begin(), kLevels.end(), word);
    if (level == kLevels.end()) return bad_algo(text, "unknown level " + quoted(word));
    if (!contains(kHcclWords, algorithm) && !is_name(algorithm)) {
      return bad_algo(text, "unknown algorithm " + quoted(algorithm));
    }
    const auto number = static_cast<int>(level - kLevels.begin());
    if (!chosen.emplace(number, algorithm).second) {
      return bad_algo(text, quoted(word) + " twice");
    }
    if (number == 0 && algorithm == "null" && !common) return bad_algo(text, "level0:null");
  }
  return chosen;
}

// Parses HCCL_ALGO: maps each operation ("": every operation) to the algorithm of each level.
Result<std::map<std::string, std::map<int, std::string>>> parse_algo(const std::string& text) {
  const auto bad = [&](const std::string& why) { return bad_algo(text, why); };
  std::map<std::string, std::map<int, std::string>> table;
  if (text.empty()) return table;
  bool common = false;
  for (const std::string_view part : split_at(text, '/')) {
    const auto equals = part.find('=');
    const std::string operation(equals == std::string_view::npos ? "" : part.substr(0, equals));
    const std::string_view levels =
        equals == std::string_view::npos ? part : part.substr(equals + 1);
    if (equals == std::string_view::npos) {
      if (common || !table.empty()) return bad("a common part stands alone");
      common = true;
    } else {
      if (common) return bad("common and specific parts are mixed");
      if (!contains(kOperations, operation)) return bad("unknown operation \"" + operation + "\"");
      if (table.count(operation) != 0) return bad("operation \"" + operation + "\" twice");
    }
    HCCL_ASSIGN_OR_RETURN(auto chosen, parse_levels(text, levels, operation.empty()));
    table.emplace(operation, std::move(chosen));
  }
  return table;
}

Status read_network(const Get& get, Config& config) {
  if (auto v = get("HCCL_WIRE"); v && !v->empty()) {
    const auto word = std::find(kWires.begin(), kWires.end(), *v);
    if (word == kWires.end()) return invalid("HCCL_WIRE", *v, "auto, plain, crc or tls");
    config.wire = static_cast<Wire>(word - kWires.begin());
  }
  for (const char* name : {"HCCL_IF_IP", "CM_WORKER_IP"}) {  // the second takes precedence
    const auto v = get(name);
    if (!v || v->empty()) continue;
    const auto percent = v->find('%');
    config.if_ip = v->substr(0, percent);
    config.if_ip_interface = percent == std::string::npos ? "" : v->substr(percent + 1);
    if (!parse_address(config.if_ip).ok() ||
        (percent != std::string::npos && percent + 1 == v->size())) {
      return invalid(name, *v, "an IPv4 or IPv6 address, or address%interface");
    }
  }
  if (auto v = get("HCCL_SOCKET_IFNAME")) {
    std::string_view names = *v;
    for (const char flag : {'^', '='}) {
      if (names.starts_with(flag)) names.remove_prefix(1);
    }
    // An empty prefix would match every interface.
    if (contains(split_at(names, ','), "") || names.find_first_of("^=") != names.npos) {
      return invalid("HCCL_SOCKET_IFNAME", *v, "names as eth,enp or =eth0 or ^docker or ^=eth0");
    }
    config.socket_ifname = *v;
  }
  if (auto v = get("HCCL_SOCKET_FAMILY")) {
    if (*v != "AF_INET" && *v != "AF_INET6")
      return invalid("HCCL_SOCKET_FAMILY", *v, "AF_INET or AF_INET6");
    config.socket_family = *v == "AF_INET" ? AF_INET : AF_INET6;
  }
  HCCL_RETURN_IF_ERROR(read_number(get, "HCCL_IF_BASE_PORT", 1024, 65520, config.base_port));
  if (auto v = get("HCCL_HOST_SOCKET_PORT_RANGE"); v && !v->empty()) {
    HCCL_ASSIGN_OR_RETURN(config.port_ranges,
                          port_ranges("HCCL_HOST_SOCKET_PORT_RANGE", without_blanks(*v)));
  }
  if (auto v = get("HCCL_JOB_SECRET_FILE")) config.job_secret_file = *v;
  // With 0 the user relies on HCCL's list of allowed hosts, which the library lacks. So joining
  // must fail.
  std::uint64_t no_list = 1;
  HCCL_RETURN_IF_ERROR(read_number(get, "HCCL_WHITELIST_DISABLE", 0, 1, no_list));
  if (no_list == 0) {
    return Status(Code::kNotSupport,
                  "HCCL_WHITELIST_DISABLE is 0, but the library has no list of hosts: "
                  "HCCL_JOB_SECRET_FILE decides who may join");
  }
  return read_number(get, "HCCL_ALLOW_INSECURE", 0, 1, config.allow_insecure);
}

// Returns the folder that the user chose, else the job's folder, else a folder in the user's home.
// The default is never /tmp, because everybody can write there.
std::string read_flight_dir(const Get& get) {
  std::string dir;
  for (const auto& [name, below] :
       {std::pair("HCCL_FLIGHT_RECORDER_DIR", ""), std::pair("TMPDIR", ""),
        std::pair("XDG_STATE_HOME", "/hccl"), std::pair("HOME", "/.local/state/hccl")}) {
    if (auto v = get(name); v && !v->empty() && dir.empty()) dir = *v + below;
  }
  return dir;
}

Status read_timers(const Get& get, Config& config) {
  HCCL_RETURN_IF_ERROR(read_number(get, "HCCL_CONNECT_TIMEOUT", 1, 7200, config.connect_timeout));
  if (auto v = get("HCCL_EXEC_TIMEOUT")) {
    // HCCL allows two decimals; the library rounds up to whole seconds.
    const auto dot = v->find('.');
    const std::string_view fraction =
        dot == std::string::npos ? "0" : std::string_view(*v).substr(dot + 1);
    const auto whole =
        number("HCCL_EXEC_TIMEOUT", std::string_view(*v).substr(0, dot), 0, 2147483647);
    const auto rest = number("HCCL_EXEC_TIMEOUT", fraction, 0, 99);
    if (!whole.ok() || !rest.ok() || fraction.size() > 2) {
      return invalid("HCCL_EXEC_TIMEOUT", *v, "seconds, 0 to 2147483647, at most two decimals");
    }
    config.exec_timeout = std::chrono::seconds(whole.value() + (rest.value() != 0 ? 1 : 0));
  }
  // At least 5 s: with eight busy threads on two cores, sleeping threads woke up to 2 s late.
  HCCL_RETURN_IF_ERROR(read_number(get, "HCCL_PEER_TIMEOUT", 5, 2147483647, config.peer_timeout,
                                   " (in less, a rank that only waits for a core may look dead)"));
  return read_number(get, "HCCL_SPIN_US", 0, 1000000, config.spin);
}

std::optional<std::string> variable(const Config::GetEnv& variables, const char* name) {
  const char* value = variables(name);
  // HCCL uses this word for a variable that is not set.
  if (value == nullptr || std::string_view(value) == "EmptyString") return std::nullopt;
  return std::string(value);
}

}  // namespace

const char* environment(const char* name) {
  // These variables name folders for files. The caller of a privileged program must not choose the
  // folders, so secure_getenv() returns null in such a program.
  const std::string_view word = name;
  const bool place = word.starts_with("XDG_") || word == "TMPDIR" || word == "HOME";
  return place ? ::secure_getenv(name) : std::getenv(name);
}

Result<DeviceConfig> DeviceConfig::read(const Config::GetEnv& variables) {
  DeviceConfig config;
  config.count = std::max(16u, std::thread::hardware_concurrency());
  const auto get = [&](const char* name) { return variable(variables, name); };
  HCCL_RETURN_IF_ERROR(read_number(get, "HCCL_DEVICE_COUNT", 1, 65536, config.count));
  HCCL_RETURN_IF_ERROR(read_number(get, "HCCL_DEVICE_MEMORY", 1, 1u << 26, config.memory_mb));
  HCCL_RETURN_IF_ERROR(read_number(get, "HCCL_MEMORY_CACHE", 0, 1u << 26, config.cache_mb));
  return config;
}

Result<Config> Config::read(const GetEnv& variables) {
  Config config;
  const auto get = [&](const char* name) { return variable(variables, name); };
  if (auto v = get("HCCL_TRANSPORT"); v && !v->empty()) {
    // Checks only the form: transport/registry.cc and the plugins know the names.
    const bool plain = std::all_of(v->begin(), v->end(),
                                   [](unsigned char c) { return std::isalnum(c) || c == '_'; });
    if (!plain || v->size() > kTransportCap) {
      return invalid("HCCL_TRANSPORT", *v,
                     "auto or a transport's name, 1 to 64 letters, digits and underscores");
    }
    config.transport = *v;
  }
  if (auto v = get("HCCL_ALGO")) {
    HCCL_RETURN_IF_ERROR(config.set_algo(*v));
  }
  HCCL_RETURN_IF_ERROR(read_number(get, "HCCL_BUFFSIZE", 1, 1u << 20, config.buffer_mb));
  if (auto v = get("HCCL_DETERMINISTIC")) {
    const std::string word = lower(*v);
    if (word != "false" && word != "true" && word != "strict") {
      return invalid("HCCL_DETERMINISTIC", *v, "false, true or strict");
    }
    config.deterministic_is_given = true;
    config.deterministic = word == "strict" ? Deterministic::kStrict
                           : word == "true" ? Deterministic::kOn
                                            : Deterministic::kOff;
  }
  if (auto v = get("HCCL_SPLIT"); v && !v->empty()) {
    if (*v != "default" && *v != "auto" && *v != "trace") {
      return invalid("HCCL_SPLIT", *v, "default, auto or trace");
    }
    config.split = *v == "auto" ? Split::kAuto : *v == "trace" ? Split::kTrace : Split::kDefault;
  }
  if (auto v = get("HCCL_CMA"); v && !v->empty()) {
    if (*v != "auto" && *v != "off") return invalid("HCCL_CMA", *v, "auto or off");
    config.cma = *v == "auto";
  }
  HCCL_RETURN_IF_ERROR(check_npu_settings(get));
  HCCL_RETURN_IF_ERROR(read_network(get, config));
  HCCL_RETURN_IF_ERROR(read_timers(get, config));
  HCCL_ASSIGN_OR_RETURN(config.log_level, read_log(get));
  config.flight_recorder_dir = read_flight_dir(get);
  if (auto v = get("HCCL_TUNE_FILE")) {
    if (v->size() > 4095) return invalid("HCCL_TUNE_FILE", *v, "a path of at most 4095 bytes");
    config.tune_file = *v;
  }
  if (auto v = get("HCCL_PLUGIN_PATH"); v && !v->empty()) {
    if (v->front() != '/') return invalid("HCCL_PLUGIN_PATH", *v, "an absolute directory");
    config.plugin_path = *v;
  }
  if (auto v = get("HCCL_OFI_PROVIDER")) config.ofi_provider = *v;
  return config;
}

Status Config::set_algo(std::string_view text) {
  std::string plain = without_blanks(text);
  if (plain.size() > kAlgoCap) {
    return invalid("HCCL_ALGO", text.substr(0, 64),
                   "at most " + std::to_string(kAlgoCap) + " bytes");
  }
  HCCL_RETURN_IF_ERROR(parse_algo(plain).status());
  algo = std::move(plain);
  return {};
}

std::string Config::algorithm_for(std::string_view operation, int level) const {
  const auto table = parse_algo(algo);
  if (!table.ok()) return {};
  std::string word(operation);
  std::erase(word, '_');  // HCCL writes reducescatter
  for (const std::string base : {"allgather", "reducescatter", "alltoall"}) {
    if (word == base + "v" || word == base + "vc") word = base;
  }
  for (const auto& key : {word, std::string()}) {
    const auto at = table.value().find(key);
    if (at == table.value().end()) continue;
    const auto named = at->second.find(level);
    if (named == at->second.end() || named->second == "NA" || named->second == "null") return {};
    // Inside a host, HCCL's words name no algorithm of this library.
    return level == 0 && contains(kHcclWords, named->second) ? "" : named->second;
  }
  return {};
}

Status Config::check_algorithms(const Names& local, const Names& remote) const {
  HCCL_ASSIGN_OR_RETURN(const auto table, parse_algo(algo));
  for (const auto& [operation, levels] : table) {
    for (const auto& [level, name] : levels) {
      const Names& known = level == 0 ? local : remote;
      if (contains(kHcclWords, name) || contains(known, name)) continue;
      std::string why = "unknown algorithm \"" + name + "\" of level" + std::to_string(level) +
                        ", which has HCCL's words and";
      for (const std::string_view each : known) why += " " + std::string(each);
      return bad_algo(algo, why);
    }
  }
  return {};
}

std::string Config::agreement() const {
  return "transport=" + transport + " algo=" + algo + " buffsize=" + std::to_string(buffer_mb) +
         " deterministic=" + std::to_string(static_cast<int>(deterministic)) +
         " split=" + std::to_string(static_cast<int>(split)) + " cma=" + (cma ? "auto" : "off") +
         " wire=" + kWires[static_cast<std::size_t>(wire)];
}

}  // namespace hccl
