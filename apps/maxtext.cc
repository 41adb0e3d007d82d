#include "commands/commands.h"

int main(int argc, char** argv) { return mt::commands::run(argc, argv); }
