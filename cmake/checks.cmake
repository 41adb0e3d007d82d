# The scripts' checks as tests, so that ctest alone tells everything.
find_package(Python3 COMPONENTS Interpreter REQUIRED)
add_test(NAME rooms.includes_follow_the_table
         COMMAND ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/scripts/check_rooms.py)
add_test(NAME rooms.every_rule_can_fail
         COMMAND ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/scripts/check_rooms.py --self-test)
set_tests_properties(rooms.includes_follow_the_table rooms.every_rule_can_fail
                     PROPERTIES LABELS checks TIMEOUT 60)
