#include "split/trace.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <system_error>

#include "hccl/base/fd.h"
#include "hccl/base/thread.h"
#include "hccl/files/codecs.h"

namespace hccl::split {
namespace {

// The limits are at least twice what HcclFusionTraceWrite writes. They exist because parsing
// needs more memory than the file has bytes: up to a hundred times as much for a binary message,
// and kilobytes for each object of a text.
constexpr std::size_t kLargestText = std::size_t{256} << 20;
constexpr std::size_t kLargestMessage = std::size_t{32} << 20;
constexpr std::ptrdiff_t kMostObjects = 1 << 20;
// The last member of a trace in Chrome's form is the whole trace; viewers ignore it. A JSON string
// cannot contain this text, because the string would escape the quotes.
constexpr std::string_view kMessageKey = ",\"hcclTrace\":";
constexpr const char* kReadable = "write it to a name like trace.pb or trace.pb.json";

/// A field of a CSV row, quoted if necessary.
std::string quoted(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"') result += '"';
    result += c;
  }
  return result + '"';
}

/// One row of the table. Fields that do not apply are empty.
struct Row {
  std::string kind;
  std::string name;
  std::optional<std::uint32_t> first{};
  std::optional<std::uint32_t> last{};
  std::optional<std::uint64_t> bytes{};
  std::string algorithm{};
  std::int64_t start_ns = 0;
  std::int64_t end_ns = 0;
  std::optional<std::int64_t> wait_ns{};
  std::optional<std::int64_t> cpu_ns{};
};

template <class T>
std::string text_of(const std::optional<T>& value) {
  return value ? std::to_string(*value) : std::string();
}

std::string line(const Trace& trace, const TraceIteration& iteration, const Row& row) {
  return std::to_string(trace.rank) + ',' + std::to_string(iteration.number) + ',' + row.kind +
         ',' + quoted(row.name) + ',' + text_of(row.first) + ',' + text_of(row.last) + ',' +
         text_of(row.bytes) + ',' + quoted(row.algorithm) + ',' + std::to_string(row.start_ns) +
         ',' + std::to_string(row.end_ns) + ',' + text_of(row.wait_ns) + ',' + text_of(row.cpu_ns) +
         '\n';
}

Status cannot_write(const std::string& path, int error) {
  return Status(Code::kOpenFileFailure,
                "cannot write trace " + path + ": " + std::generic_category().message(error));
}

Status write_file(const std::string& path, std::string_view content) {
  Fd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (!file.valid()) return cannot_write(path, errno);
  const FilesWithinLimit within;
  while (!content.empty()) {
    const ssize_t written = ::write(file.get(), content.data(), content.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return cannot_write(path, written < 0 ? errno : ENOSPC);
    content.remove_prefix(static_cast<std::size_t>(written));
  }
  // Some network file systems report a full disk only at close.
  if (::close(file.release()) != 0 && errno != EINTR) return cannot_write(path, errno);
  return {};
}

// Returns the message that a text in Chrome's form contains; empty if there is none.
std::string message_in(const std::string& chrome) {
  const std::size_t key = chrome.rfind(kMessageKey);
  const std::size_t end = chrome.rfind('}');
  if (key == std::string::npos || end < key + kMessageKey.size()) return {};
  return chrome.substr(key + kMessageKey.size(), end - key - kMessageKey.size());
}

Status too_large(const std::string& path, const std::string& what) {
  return Status(Code::kPara, path + ": not a trace of this library: more than " + what);
}

}  // namespace

std::vector<TracePoint> points(const TraceIteration& iteration) {
  constexpr std::string_view kIterationEnd = "iteration_end";
  std::vector<TracePoint> all;
  all.reserve(iteration.marks.size() + 2 * iteration.segments.size());
  for (const auto& mark : iteration.marks)
    if (mark.name != kIterationEnd) all.push_back(mark);
  for (std::size_t k = 0; k < iteration.segments.size(); ++k) {
    const std::string name = "allreduce" + std::to_string(k + 1);
    all.push_back({name + "_start", iteration.segments[k].start_ns});
    all.push_back({name + "_end", iteration.segments[k].end_ns});
  }
  for (const auto& mark : iteration.marks)
    if (mark.name == kIterationEnd) all.push_back(mark);
  std::stable_sort(all.begin(), all.end(),
                   [](const TracePoint& a, const TracePoint& b) { return a.time_ns < b.time_ns; });
  return all;
}

std::string timeline_text(const TraceIteration& iteration) {
  const auto all = points(iteration);
  std::string text;
  for (const auto& point : all)
    text += std::to_string((point.time_ns - all.front().time_ns) / 1000) + ' ' + point.name + '\n';
  return text;
}

std::string csv(const Trace& trace) {
  std::string text =
      "rank,iteration,kind,name,first,last,bytes,algorithm,start_ns,end_ns,wait_for_peer_ns,"
      "cpu_ns\n";
  for (const auto& iteration : trace.iterations) {
    for (const auto& point : points(iteration)) {
      Row row{"point", point.name};
      row.start_ns = row.end_ns = point.time_ns;
      text += line(trace, iteration, row);
    }
    for (const auto& gradient : iteration.gradients) {
      Row row{"gradient", gradient.name, gradient.index, gradient.index, gradient.bytes};
      row.start_ns = row.end_ns = gradient.ready_ns;
      text += line(trace, iteration, row);
    }
    for (std::size_t k = 0; k < iteration.segments.size(); ++k) {
      const auto& segment = iteration.segments[k];
      text += line(trace, iteration,
                   {"segment", "allreduce" + std::to_string(k + 1), segment.first, segment.last,
                    segment.bytes, segment.algorithm, segment.start_ns, segment.end_ns,
                    segment.wait_for_peer_ns, segment.cpu_ns});
    }
  }
  return text;
}

Result<Trace> read_trace(const std::string& path) {
  Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  const auto cannot_read = [&](int error) {
    return Status(Code::kOpenFileFailure,
                  "cannot read trace " + path + ": " + std::generic_category().message(error));
  };
  if (!file.valid()) return cannot_read(errno);
  std::string content;
  std::string block(std::size_t{1} << 16, '\0');
  for (;;) {
    const ssize_t got = ::read(file.get(), block.data(), block.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return cannot_read(errno);
    if (got == 0) break;
    content.append(block, 0, static_cast<std::size_t>(got));
    if (content.size() > kLargestText) return too_large(path, "256 MiB");
  }
  if (content.empty()) return Status(Code::kPara, path + ": not a trace: the file is empty");
  if (content.starts_with("rank,iteration,"))
    return Status(Code::kPara, path + " is a trace as a table, which cannot be read: " + kReadable);
  auto form = files::Form::kBinary;
  const std::size_t first = content.find_first_not_of(" \t\r\n");
  if (first != std::string::npos && content[first] == '{') {
    if (content.find("\"traceEvents\"") != std::string::npos) {
      content = message_in(content);
      if (content.empty())
        return Status(Code::kPara, path +
                                       " is a trace in Chrome's form without the part that is "
                                       "read: " +
                                       kReadable);
    }
    if (std::count(content.begin(), content.end(), '{') > kMostObjects)
      return too_large(path, "1048576 objects");
    form = files::Form::kJson;
  } else if (content.size() > kLargestMessage) {
    return too_large(path, "32 MiB");
  }
  auto trace = files::decode(&files::Codecs::trace, content, form);
  if (!trace.ok()) return trace.status().with_context(path);
  return trace;
}

Status write_trace(const Trace& trace, const std::string& path) {
  const bool is_message_json = path.ends_with(".pb.json");
  if (path.ends_with(".csv")) return write_file(path, csv(trace));
  const bool is_json = path.ends_with(".json");
  const auto message = files::encode(&files::Codecs::trace, trace,
                                     is_json ? files::Form::kJson : files::Form::kBinary);
  if (is_json && !is_message_json) {
    std::string text = chrome_json(trace);
    // Without the plugin for files, the message is missing; the text still serves viewers.
    if (message.ok()) text.replace(text.size() - 1, 1, std::string(kMessageKey) + *message + "}");
    return write_file(path, text);
  }
  HCCL_RETURN_IF_ERROR(message.status());
  return write_file(path, *message);
}

}  // namespace hccl::split
