// Valid rank tables, one for each layout; tests break them on purpose.
#pragma once

namespace hccl::test {

inline constexpr const char* kTable10 = R"({
  "status": "completed", "version": "1.0", "server_count": "2",
  "server_list": [
    {"server_id": "node-a", "host_nic_ip": "reserve",
     "device": [
      {"device_id": "0", "device_ip": "192.168.1.8", "device_port": "17000", "rank_id": "0"},
      {"device_id": "1", "device_ip": "192.168.1.9", "rank_id": "2", "net_protocol": "rdma"}]},
    {"server_id": "node-b", "host_ip": "10.0.0.2",
     "device": [
      {"device_id": "0", "device_ip": "192.168.2.8", "device_port": "17000", "rank_id": "1"},
      {"device_id": "5", "device_ip": "192.168.2.9", "host_port": "18001", "device_port": "17000",
       "rank_id": "3", "backup_device_ip": "192.168.3.1", "device_vnic_port": "16667",
       "backup_device_port": "16668"}]}]
})";

inline constexpr const char* kTableHostMode = R"({
  "status": "completed", "version": "1.0", "server_count": "2",
  "server_list": [
    {"server_id": "a", "host_ip": "fd00::1", "device": [
      {"device_id": "0", "rank_id": "0", "device_port": "17000"},
      {"device_id": "1", "rank_id": "1", "device_port": "17000"}]},
    {"server_id": "b", "host_ip": "fd00:0:0::2", "device": [
      {"device_id": "0", "rank_id": "2", "device_port": "17000", "net_position": "host"},
      {"device_id": "1", "rank_id": "3", "device_port": "17001", "net_protocol": "tcp"}]}]
})";

inline constexpr const char* kTableOneServer = R"({
  "version": "1.0", "status": "completed", "server_list": [
    {"server_id": "10.1.1.1", "device": [
      {"device_id": "0", "device_ip": "", "rank_id": "0"},
      {"device_id": "1", "device_ip": "", "rank_id": "1"}]}]
})";

inline constexpr const char* kTable12 = R"({
  "status": "completed", "version": "1.2", "server_count": "3",
  "server_list": [
    {"server_id": "a", "device": [
      {"device_id": "0", "super_device_id": "0", "device_ip": "10.0.0.1", "rank_id": "0"}]},
    {"server_id": "b", "device": [
      {"device_id": "0", "super_device_id": "1", "device_ip": "10.0.0.2", "rank_id": "1"}]},
    {"server_id": "c", "device": [
      {"device_id": "0", "super_device_id": "0", "device_ip": "10.0.0.3", "rank_id": "2"}]}],
  "super_pod_list": [
    {"super_pod_id": "p0", "server_list": [{"server_id": "a"}, {"server_id": "b"}]},
    {"super_pod_id": "p1", "server_list": [{"server_id": "c"}]}]
})";

inline constexpr const char* kTable11 = R"({
  "status": "completed", "version": "1.1", "collective_id": "job-7", "mode": "tcp",
  "node_list": [
    {"node_addr": "10.0.0.1", "ranks": [
      {"rank_id": "0"},
      {"rank_id": "1", "port": "60100", "rank_ip": "10.9.0.1"}]},
    {"node_addr": "10.0.0.2", "ranks": [
      {"rank_id": "2", "device_id": "3", "port": "60100"},
      {"rank_id": "3", "device_id": "4", "port": "60101"}]}]
})";

inline constexpr const char* kTableCloud = R"({
  "status": "completed", "group_count": "1", "chip_info": "910", "para_plane_nic_num": 2,
  "group_list": [
    {"group_name": "worker", "device_count": "4", "instance_count": "3", "instance_list": [
      {"pod_name": "pod-z", "server_id": "host9",
       "devices": [{"device_id": "2", "device_ip": "10.0.0.5"}]},
      {"pod_name": "pod-a", "server_id": "host9",
       "devices": [{"device_id": "1", "device_ip": "10.0.0.6"}]},
      {"pod_name": "pod-m", "server_id": "host10",
       "devices": [{"device_id": "7", "device_ip": "10.0.0.7"},
                   {"device_id": "0", "device_ip": ""}]}]}]
})";

inline constexpr const char* kTableLab = R"({
  "status": "completed", "deploy_mode": "lab", "group_count": "2",
  "para_plane_nic_location": "device", "para_plane_nic_name": ["eth0"], "board_id": "0x002f",
  "group_list": [
    {"group_name": "g0", "device_num": "2", "server_num": "1", "instance_count": "2",
     "instance_list": [
      {"rank_id": "0", "server_id": "s1",
       "devices": [{"device_id": "0", "device_ip": "10.0.0.1"}]},
      {"rank_id": "2", "server_id": "s1",
       "devices": [{"device_id": "1", "device_ip": "10.0.0.2"}]}]},
    {"group_name": "g1", "device_num": "2", "server_num": "2", "instance_count": "2",
     "instance_list": [
      {"rank_id": "1", "server_id": "s2",
       "devices": [{"device_id": "0", "device_ip": "10.0.0.3"}]},
      {"rank_id": "3", "server_id": "s3",
       "devices": [{"device_id": "0", "device_ip": "10.0.0.4"}]}]}]
})";

inline constexpr const char* kTables[] = {kTable10, kTableHostMode, kTableOneServer, kTable12,
                                          kTable11, kTableCloud,    kTableLab};

}  // namespace hccl::test
