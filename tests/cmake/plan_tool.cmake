# hccl-plan, on traces of real networks; its page in a browser.
if(TARGET hccl_plan)
  foreach(name plan_tool_test plan_page_test)
    add_test(NAME ${name}
      COMMAND /usr/bin/python3 -B ${CMAKE_CURRENT_SOURCE_DIR}/plan_tool/${name}.py $<TARGET_FILE:hccl_plan>)
    set_tests_properties(${name} PROPERTIES TIMEOUT 300)
  endforeach()
  add_test(NAME split_models_test
    COMMAND /usr/bin/python3 -B ${PROJECT_SOURCE_DIR}/benchmarks/split/models.py --check)
endif()
