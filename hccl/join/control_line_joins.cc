// A control line joins: it finds the coordinator, says hello and reads the table of ranks.
#include <unistd.h>

#include <utility>

#include "hccl/base/caught.h"
#include "hccl/base/process.h"
#include "hccl/base/socket.h"
#include "hccl/join/control_line.h"
#include "hccl/join/find_root.h"

namespace hccl::join {
namespace {

using wire::Kind;

}  // namespace

Result<std::shared_ptr<ControlLine>> ControlLine::join(const RootInfo& info, int size, int rank,
                                                       const Config& config, Logger log,
                                                       const Begun& begun,
                                                       const wire::Attempt& attempt,
                                                       Result<std::string> boot) {
  HCCL_RETURN_IF_ERROR(boot.status());
  const Deadline deadline = Deadline::after(config.connect_timeout);
  HCCL_ASSIGN_OR_RETURN(Line line, find_root(info, config.if_ip, deadline, log));
  std::shared_ptr<ControlLine> control(
      new ControlLine(std::move(line), info, rank, config.peer_timeout, std::move(log)));
  if (begun) HCCL_RETURN_IF_ERROR(begun(control));
  const Deadline table = Deadline::after(config.connect_timeout + kGrace);
  HCCL_RETURN_IF_ERROR(control->say_hello(size, config, attempt, host_identity(*boot), table));
  control->thread_ = Thread("hccl-control", [raw = control.get()] {
    try {
      raw->listen();
    } catch (...) {
      raw->fail(caught());
    }
  });
  return control;
}

Status ControlLine::say_hello(int size, const Config& config, const wire::Attempt& attempt,
                              HostIdentity host, Deadline deadline) {
  wire::Member me{.rank = static_cast<std::uint32_t>(rank_),
                  .pid = static_cast<std::uint32_t>(::getpid()),
                  .cores = core_mask(),
                  .host = std::move(host),
                  .started = start_of(::getpid()),
                  .attempt = attempt};
  HCCL_ASSIGN_OR_RETURN(const Endpoint end, local_endpoint(line_.fd()));
  me.address = end.address;
  ByteWriter hello;
  hello.put(Kind::kHello).put(wire::kVersion).put(static_cast<std::uint32_t>(size));
  hello.put_text(config.agreement());
  wire::put(hello, me);
  const char* const context = "joining: no word from the root";
  HCCL_RETURN_IF_ERROR(send(hello.bytes(), deadline).with_context(context));
  auto frame = receive(deadline);
  if (!frame.ok()) return frame.status().with_context(context);
  return read_table(*frame, size);
}

Status ControlLine::read_table(const std::string& frame, int size) {
  ByteReader in(frame);
  const auto kind = in.get<Kind>();
  if (kind == Kind::kRefused) return wire::get_status(in);
  const auto number = in.get<std::uint32_t>();
  const auto coordinator_rank = in.get<std::uint32_t>();
  if (kind != Kind::kTable || number != static_cast<std::uint32_t>(size)) {
    return Status(Code::kInternal, "joining: the root sent something else than the table of ranks");
  }
  coordinator_rank_ = coordinator_rank < number ? static_cast<int>(coordinator_rank) : -1;
  for (std::uint32_t r = 0; r < number; ++r) members_.push_back(wire::get_member(in));
  if (!in.finished()) return Status(Code::kInternal, "joining: the table of ranks is damaged");
  return {};
}

}  // namespace hccl::join
