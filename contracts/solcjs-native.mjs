#!/usr/bin/env node
// forge wants a native solc binary; the compiler that npm carries is JavaScript. This answers the two
// calls forge makes (`--version`, and `--standard-json` on stdin) in a native compiler's words.
//
// Warnings about installed packages are dropped, and so is code 4591 ("more than 256 warnings"), which
// names no file: what is left for `deny = "warnings"` to judge is our own code.
import fs from "node:fs";
import { createRequire } from "node:module";
import path from "node:path";

const require = createRequire(import.meta.url);
const solc = require("solc");
process.removeAllListeners("uncaughtException"); // emscripten installs one that swallows stack traces

const args = process.argv.slice(2);
const valuesOf = (flag) => args.flatMap((arg, i) => (arg === flag ? [args[i + 1]] : []));

if (args.includes("--version")) {
  const version = solc.version().replace(".Emscripten.clang", ".Linux.g++");
  process.stdout.write(`solc, the solidity compiler commandline interface\nVersion: ${version}\n`);
} else if (args.includes("--standard-json")) {
  compile(fs.readFileSync(0, "utf8"));
} else {
  process.stderr.write(`only --version and --standard-json are answered here, found: ${args.join(" ")}\n`);
  process.exitCode = 1;
}

function compile(input) {
  const base = valuesOf("--base-path")[0] ?? process.cwd();
  const roots = [base, ...valuesOf("--include-path")];
  const output = JSON.parse(solc.compile(input, { import: (file) => load(roots, file) }));
  output.errors = (output.errors ?? []).filter((entry) => !isForeign(entry));
  const bytes = Buffer.from(JSON.stringify(output));
  for (let sent = 0; sent < bytes.length; ) sent += fs.writeSync(1, bytes, sent);
}

function load(roots, file) {
  const found = roots.map((root) => path.resolve(root, file)).find((full) => fs.existsSync(full));
  return found ? { contents: fs.readFileSync(found, "utf8") } : { error: `File not found: ${file}` };
}

function isForeign({ severity, errorCode, sourceLocation }) {
  if (severity === "error") return false;
  return errorCode === "4591" || /(^|\/)node_modules\//.test(sourceLocation?.file ?? "");
}
