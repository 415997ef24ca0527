#include "hccl/core/opening.h"

#include <algorithm>

#include "hccl/base/auth.h"
#include "transport/registry.h"

namespace hccl::core {

namespace {

// Whether the end of another rank may be the cause of a failure to open connections.
bool may_follow_an_end(Code code) {
  return code == Code::kRemote || code == Code::kTimeout || code == Code::kTcpConnect ||
         code == Code::kTcpTransfer;
}

}  // namespace

Status Opening::compare_configurations(Selection& selection, Deadline deadline) {
  if (is_.size() == 1) {
    if (selection.asks()) static_cast<void>(selection.offer());  // warns of a bad file
    return {};
  }
  const bool offers = selection.asks() && is_.rank == 0;
  const auto agreed = is_.control->agree(is_.id, is_.ranks, is_.config.agreement(),
                                         offers ? selection.offer() : std::string(), deadline,
                                         failure_.flag(), is_.name);
  if (!agreed.ok()) return agreed.status().with_context(is_.name);
  return selection.asks() ? selection.accept(agreed.value().offer) : Status();
}

Result<std::vector<std::string>> Opening::gather(const std::string& what,
                                                 const std::map<int, Status>& absent,
                                                 const std::string& mine, Deadline deadline,
                                                 const AbortFlag& abort) const {
  std::vector<int> ranks;
  for (int rank = 0; rank < is_.size(); ++rank) {
    if (absent.count(rank) == 0) ranks.push_back(is_.of_world(rank));
  }
  HCCL_ASSIGN_OR_RETURN(
      join::World::Blobs blobs,
      is_.control->exchange(identity(is_.id, what), mine, deadline, abort, is_.name, ranks));
  if (blobs.size() != ranks.size()) {
    return Status(Code::kInternal, "the root sent other parts than those asked for");
  }
  std::vector<std::string> parts;
  for (const int rank : is_.ranks)
    parts.push_back(std::move(blobs[static_cast<std::uint32_t>(rank)]));
  return parts;
}

transport::OpenArgs Opening::arguments(Deadline deadline, const AbortFlag& abort) const {
  transport::OpenArgs args;
  args.rank = is_.rank;
  args.size = is_.size();
  args.hosts = is_.placement.hosts;
  args.deadline = deadline;
  args.abort = &abort;
  args.address = is_.control->hosts()[static_cast<std::size_t>(is_.control->rank())].address;
  args.config = &is_.config;
  args.doors = is_.doors;
  args.siblings = is_.siblings;
  args.touch_rings = false;
  return args;
}

Result<std::map<int, Status>> Opening::call_roll(const Uuid& scope,
                                                 transport::OpenArgs& args) const {
  if (is_.size() == 1) return std::map<int, Status>();
  is_.control->summon(scope);
  HCCL_ASSIGN_OR_RETURN(
      const std::vector<int> here,
      is_.control->present(scope, is_.ranks, args.deadline, *args.abort, is_.name));
  std::map<int, Status> absent;
  for (int rank = 0; rank < is_.size(); ++rank) {
    if (std::find(here.begin(), here.end(), is_.of_world(rank)) != here.end()) continue;
    args.hosts[static_cast<std::size_t>(rank)] = transport::OpenArgs::kAbsent;
    absent[rank] =
        Status(Code::kRemote,
               "rank " + std::to_string(rank) +
                   (is_.control->has_left(is_.of_world(rank)) ? " has left"
                                                              : " has destroyed this communicator"),
               rank);
  }
  return absent;
}

Result<OpenedMesh> Opening::mesh(Deadline deadline, bool summons) {
  OpenedMesh opened;
  transport::OpenArgs args = arguments(deadline, failure_.flag());
  args.touch_rings = !summons;
  if (summons) {
    HCCL_ASSIGN_OR_RETURN(opened.absent, call_roll(operations_of(is_.id), args));
  }
  args.key = derive(is_.control->info().secret, "mesh " + std::string(view(is_.id)));
  if (opened.absent.empty()) {
    args.heap = is_.heap;
    args.area_bytes = &local::Region::bytes;
  }
  args.exchange = [&](const std::string& mine, Deadline until) {
    return gather("exchange " + std::to_string(exchanges_++), opened.absent, mine, until,
                  failure_.flag());
  };
  auto mesh = transport::open(is_.config.transport, args);
  if (mesh.ok()) {
    opened.mesh = std::move(mesh).value();
    return opened;
  }
  // If a process lacks memory or descriptors, the transport has told all ranks, and some ranks may
  // have ended because of that. The error must report the lack, not the end of these ranks.
  const Status& failed = mesh.status();
  const bool lack = failed.code() == Code::kSyscall || failed.code() == Code::kOom;
  const bool own = failed.culprit() == Status::kNobody || failed.culprit() == is_.rank;
  if (failure_.raised() && may_follow_an_end(failed.code())) return failure_.reason();
  const Status why = failed.with_context(is_.name + ": opening transport " + is_.config.transport);
  if (lack && own) {  // tell the ranks that wait for this rank
    failure_.abort(Status(why.code(), "rank " + std::to_string(is_.rank) + ": " + why.message(),
                          is_.of_world(is_.rank)));
  }
  return why;
}

// Opens the memory that the ranks of a host share. With one host, each rank decides by itself. With
// several hosts, all ranks must agree on whether all hosts have such memory.
Result<std::unique_ptr<exec::LocalEngine>> Opening::local(transport::Mesh& mesh, Waiter waiter,
                                                          Deadline deadline) {
  std::unique_ptr<exec::LocalEngine> engine;
  const HostMemory* const memory = mesh.host_memory();
  if (is_.placement.even_hosts > 1 && is_.placement.even_hosts < is_.size()) {
    HCCL_ASSIGN_OR_RETURN(const std::vector<std::string> shared,
                          gather("exchange " + std::to_string(exchanges_++), {},
                                 memory == nullptr ? "0" : "1", deadline, failure_.flag()));
    if (std::find(shared.begin(), shared.end(), "0") != shared.end()) return engine;
  } else if (memory == nullptr || memory->ranks.size() != is_.ranks.size()) {
    return engine;
  }
  engine = std::make_unique<exec::LocalEngine>(
      *memory, memory->heaps_shared() ? is_.heap : nullptr,
      kernels::StoreRule::of_this_machine(static_cast<int>(memory->ranks.size())),
      std::move(waiter), is_.placement.worker_policy);
  if (engine->ranks() > 1) {
    if (Status opened = engine->open(is_.config.cma); !opened.ok())
      return failure_.settle(std::move(opened));
  }
  return engine;
}

Result<OpenedMesh> Opening::mailbox(const AbortFlag& abort) const {
  transport::OpenArgs args = arguments(Deadline::after(is_.config.connect_timeout), abort);
  auto absent = call_roll(messages_of(is_.id), args);
  if (!absent.ok()) return absent.status().with_context(is_.name + ": opening messages with tags");
  OpenedMesh opened{nullptr, std::move(absent).value()};
  args.key = derive(is_.control->info().secret, "mailbox " + std::string(view(is_.id)));
  args.receives_connect = false;  // the mailbox says from whom its program awaits messages
  args.exchange = [&, number = 1](const std::string& mine, Deadline until) mutable {
    return gather("mailbox exchange " + std::to_string(number++), opened.absent, mine, until,
                  abort);
  };
  auto mesh = transport::open(is_.config.transport, args);
  if (mesh.ok()) {
    opened.mesh = std::move(mesh).value();
    return opened;
  }
  return mesh.status().with_context(is_.name + ": opening transport " + is_.config.transport +
                                    " for messages with tags");
}

}  // namespace hccl::core
