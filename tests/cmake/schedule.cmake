hccl_test(schedule_test
  SOURCES schedule_test.cc schedule_broken_test.cc schedule_ranks_test.cc schedule_select_test.cc
          message_costs_test.cc
  LIBS hccl_schedule
  LABEL schedule)
