# This code handles no message of a collective: it runs when ranks join, groups open, ranks fail or settings are read.
# Here a small library counts more than speed: -Os halves this code.
set(small $<$<CONFIG:Release,RelWithDebInfo>:-Os>)
foreach(room hccl_join hccl_control)
  target_compile_options(${room} PRIVATE ${small})
endforeach()

# small_files(TARGET FILES...): the same for some files of a room.
function(small_files target)
  get_target_property(folder ${target} SOURCE_DIR)
  list(TRANSFORM ARGN PREPEND ${folder}/)
  set_source_files_properties(${ARGN} TARGET_DIRECTORY ${target} PROPERTIES COMPILE_OPTIONS ${small})
endfunction()
small_files(hccl_base config.cc config_log.cc log.cc memory_limit.cc misspelt.cc plugin.cc user_folder.cc)
small_files(hccl_select cost_file.cc)
small_files(hccl_core known_costs.cc opening.cc)
small_files(hccl api/comm.cc api/comm_all.cc api/comm_config.cc api/comm_query.cc api/comm_settings.cc api/communicators.cc
  api/groups.cc api/hcom_strategy.cc api/sub_comm.cc)
set_source_files_properties(${PROJECT_BINARY_DIR}/hccl/select/preset_table.cc TARGET_DIRECTORY hccl_select
  PROPERTIES COMPILE_OPTIONS ${small})
