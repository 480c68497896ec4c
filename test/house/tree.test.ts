import { fileURLToPath } from 'node:url'
import { expect, it } from 'vitest'
import { checkTree, formatViolation } from '../../scripts/house/check.js'

it('the sources keep to the rules of the house', () => {
  const { files, violations } = checkTree(fileURLToPath(new URL('../..', import.meta.url)))
  expect(files).toBeGreaterThan(0)
  expect(violations.map(formatViolation)).toEqual([])
})
