// Groups by name and split strategies: hccl/hcom.h. Arguments were checked in Python.
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "communicator.h"
#include "hccl/hcom.h"

namespace hccl::python {
namespace {

using Numbers = std::vector<std::uint32_t>;
using Query = HcclResult (*)(const char*, std::uint32_t*);

template <Query query>
std::uint32_t ask(const std::string& group) {
  std::uint32_t answer = 0;
  check(query(group.c_str(), &answer));
  return answer;
}

}  // namespace

void bind_groups(nb::module_& module) {
  module.attr("WORLD") = HCCL_WORLD_GROUP;
  module.def("create_group", [](const std::string& group, Numbers ranks) {
    BlockingCalls().run([group, ranks = std::move(ranks)]() mutable {
      return HcomCreateGroup(group.c_str(), static_cast<std::uint32_t>(ranks.size()), ranks.data());
    });
  });
  module.def("destroy_group", [](const std::string& group) {
    BlockingCalls().run([group] { return HcomDestroyGroup(group.c_str()); });
  });
  module.def("get_rank_size", &ask<HcomGetRankSize>);
  module.def("get_rank_id", &ask<HcomGetRankId>);
  module.def("get_local_rank_size", &ask<HcomGetLocalRankSize>);
  module.def("get_local_rank_id", &ask<HcomGetLocalRankId>);
  module.def("get_world_rank_from_group_rank", [](const std::string& group, std::uint32_t rank) {
    std::uint32_t answer = 0;
    check(HcomGetWorldRankFromGroupRank(group.c_str(), rank, &answer));
    return answer;
  });
  module.def("get_group_rank_from_world_rank", [](std::uint32_t rank, const std::string& group) {
    std::uint32_t answer = 0;
    check(HcomGetGroupRankFromWorldRank(rank, group.c_str(), &answer));
    return answer;
  });
  module.def("set_split_by_index", [](const std::string& group, const Numbers& last_indices) {
    check(HcomSetGradFusionByIndex(group.c_str(), static_cast<std::uint32_t>(last_indices.size()),
                                   last_indices.data()));
  });
  module.def("set_split_auto",
             [](const std::string& group) { check(HcomSetGradFusionAuto(group.c_str())); });
  module.def("set_split_by_size", [](const std::string& group, const std::vector<float>& sizes) {
    check(HcomSetGradFusionBySize(group.c_str(), static_cast<std::uint32_t>(sizes.size()),
                                  sizes.data()));
  });
}

}  // namespace hccl::python
