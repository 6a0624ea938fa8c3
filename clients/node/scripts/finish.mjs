// Runs after tsc: writes the type of modules to each half of dist, and copies the repository's licence into the
// package.
import { copyFileSync, writeFileSync } from 'node:fs'

const root = new URL('../', import.meta.url)
writeFileSync(new URL('dist/esm/package.json', root), '{"type": "module"}\n')
writeFileSync(new URL('dist/cjs/package.json', root), '{"type": "commonjs"}\n')
copyFileSync(new URL('../../LICENSE', root), new URL('LICENSE', root))
