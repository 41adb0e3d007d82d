// Whole-text goldens: tests/golden/NAME. scripts/update_goldens.sh writes them anew.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>

namespace mt::testing {

inline void expect_golden(const std::string& name, const std::string& text) {
  const std::string path = std::string(MT_SOURCE_DIR) + "/tests/golden/" + name;
  if (std::getenv("MT_UPDATE_GOLDENS") != nullptr) {
    std::ofstream(path, std::ios::binary) << text;
    return;
  }
  std::ifstream file(path, std::ios::binary);
  ASSERT_TRUE(file) << path << " is missing: run scripts/update_goldens.sh";
  std::stringstream expected;
  expected << file.rdbuf();
  EXPECT_EQ(text, expected.str()) << "if that is meant, run scripts/update_goldens.sh";
}

}  // namespace mt::testing
